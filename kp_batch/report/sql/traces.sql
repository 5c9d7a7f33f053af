-- The five highest and five lowest scores of each domain, and ten of all domains together (overall). Of equal
-- scores the latest come first.
-- Given: extreme_scores (ten or more of each label at either end: long texts are only read for these), and
-- scores (of their days).
WITH scored AS (
    SELECT
        domain,
        score,
        trace_id,
        struct_pack(
            since := -epoch_us(created_at),
            trace_id,
            created_at,
            complexity,
            novelty,
            tool_diversity,
            outcome_confidence,
            score,
            max_similarity,
            nearest_trace_id,
            nearest_age_s
        ) AS trace
    FROM $scores
    JOIN labels USING (task_domain)
    WHERE score IN (SELECT score FROM extreme_scores)
),
extremes AS (
    SELECT
        domain,
        min_by(trace, (-score, trace.since, trace_id), 10) AS highest,
        min_by(trace, (score, trace.since, trace_id), 10) AS lowest
    FROM scored
    GROUP BY domain
),
chosen AS (
    SELECT 'highest' AS which, domain, unnest(highest, recursive := true) FROM extremes
    UNION ALL
    SELECT 'lowest', domain, unnest(lowest, recursive := true) FROM extremes
)
SELECT
    * EXCLUDE (since) REPLACE (strftime(created_at AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M') AS created_at),
    -- The days of the trace and of its nearest one.
    day_of(created_at) AS day,
    day_of(created_at - to_microseconds(round(nearest_age_s * 1e6)::BIGINT)) AS nearest_day,
    row_number() OVER (
        PARTITION BY which
        ORDER BY CASE which WHEN 'highest' THEN -score ELSE score END, since, trace_id
    ) <= 10 AS overall,
    row_number() OVER (
        PARTITION BY which, domain
        ORDER BY CASE which WHEN 'highest' THEN -score ELSE score END, since, trace_id
    ) AS place
FROM chosen
QUALIFY overall OR place <= 5
ORDER BY which, CASE which WHEN 'highest' THEN -score ELSE score END, since, trace_id;
