-- Group: novelty
-- Example: FROM cache_share_of_domain ORDER BY share NULLS LAST, novelty DESC, trace_id LIMIT 10;
-- The cache held the cache_size traces just before, in replay order: the first of the domain at or after its
-- beginning, which is the trace itself if it held none, tells how many of the domain came since.
CREATE VIEW cache_share_of_domain AS
WITH placed AS (
    SELECT
        trace_id,
        task_domain,
        novelty,
        cache_size,
        coalesce(cache_group, '') AS cache_group,
        row_number() OVER (PARTITION BY cache_group ORDER BY created_at, trace_id) AS place,
        row_number() OVER (PARTITION BY cache_group, task_domain ORDER BY created_at, trace_id) AS of_domain
    FROM kp.scores
)
SELECT
    own.trace_id,
    own.task_domain,
    own.novelty,
    own.cache_size,
    own.of_domain - oldest.of_domain AS same_domain,
    same_domain / nullif(own.cache_size, 0) AS share
FROM placed AS own
ASOF JOIN placed AS oldest
    ON own.cache_group = oldest.cache_group
    AND own.task_domain = oldest.task_domain
    AND own.place - own.cache_size <= oldest.place;

COMMENT ON VIEW cache_share_of_domain IS 'Is a trace novel, or was its cache full of other domains? How many of the traces that it met are of its domain; the share is null where it met none.';
