SELECT trace_id, created_at, text_hash
FROM timeline
WHERE position >= $first AND position < $last
ORDER BY position;
