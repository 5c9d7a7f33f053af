-- What a cache held at a moment, the oldest first.
-- Given: scores (SQL for the rows of the days that count), and the variables moment, before (of the
-- traces of that moment, those whose ids come before this one; null: all), since (older ones have
-- expired; null: none) and size.
CREATE OR REPLACE TEMP TABLE cache_window AS
SELECT row_number() OVER (ORDER BY created_at, trace_id) - 1 AS position, *
FROM (
    SELECT trace_id, created_at, task_domain, text_hash, content_hash, source_file
    FROM $scores
    WHERE created_at <= getvariable('moment')
        AND (
            created_at < getvariable('moment')
            OR coalesce(trace_id < getvariable('before'), true)
        )
        AND coalesce(created_at > getvariable('since'), true)
    ORDER BY created_at DESC, trace_id DESC
    LIMIT getvariable('size')
);
