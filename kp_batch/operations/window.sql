-- Lists the traces in the window of one trace.
-- Given: the table timeline (see sample.sql), and the variables first and last (positions; last is excluded).
SELECT trace_id, created_at, text_hash
FROM timeline
WHERE position >= getvariable('first') AND position < getvariable('last')
ORDER BY position;
