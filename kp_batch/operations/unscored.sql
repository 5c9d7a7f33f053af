-- Counts the traces of the archive that have no score. Given: the schema published (its tables).
SELECT count(DISTINCT trace_id)
FROM published.facts
SEMI JOIN (
    -- The current content, as in changes.sql.
    FROM published.files
    QUALIFY status = 'read'
        OR NOT bool_or(status = 'read') OVER (PARTITION BY regexp_replace(file_id, '-v[0-9]+$', ''))
) AS counting USING (file_id)
ANTI JOIN published.rejects USING (file_id, "row")  -- superseded ones
ANTI JOIN published.scores USING (trace_id)
WHERE len(reasons) = 0;
