-- Lists the traces in the caches of some groups at a moment, by group and time, the oldest first.
-- Given: scores (SQL for the rows of the days that count), the table cache_groups, and the variables:
-- - moment;
-- - before: traces of that very moment count if their ids come before this one (null: all of them count);
-- - since: traces up to this time have expired (null: none has);
-- - size: of each cache.
CREATE OR REPLACE TEMP TABLE cache_window AS
SELECT row_number() OVER (ORDER BY cache_group, created_at, trace_id) - 1 AS position, *
FROM (
    SELECT trace_id, created_at, task_domain, text_hash, content_hash, source_file, scores.cache_group
    FROM $scores AS scores
    SEMI JOIN cache_groups ON scores.cache_group IS NOT DISTINCT FROM cache_groups.cache_group
    WHERE created_at <= getvariable('moment')
        AND (
            created_at < getvariable('moment')
            OR coalesce(trace_id < getvariable('before'), true)
        )
        AND coalesce(created_at > getvariable('since'), true)
    QUALIFY row_number() OVER (PARTITION BY scores.cache_group ORDER BY created_at DESC, trace_id DESC)
        <= getvariable('size')
);
