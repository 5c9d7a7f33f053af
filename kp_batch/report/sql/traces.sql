-- The ten highest and ten lowest scores of each domain; overall: whether they are so of all domains.
WITH extremes AS (
    SELECT
        domain,
        min_by(trace_id, (-score, trace_id), 10) AS highest,
        min_by(trace_id, (score, trace_id), 10) AS lowest
    FROM scores
    JOIN labels USING (task_domain)
    GROUP BY domain
),
chosen AS (
    SELECT domain, 'highest' AS which, unnest(highest) AS trace_id FROM extremes
    UNION ALL
    SELECT domain, 'lowest', unnest(lowest) FROM extremes
)
SELECT
    which,
    domain,
    trace_id,
    strftime(created_at AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M') AS created_at,
    complexity,
    novelty,
    tool_diversity,
    outcome_confidence,
    score,
    max_similarity,
    nearest_trace_id,
    nearest_age_s,
    row_number() OVER (
        PARTITION BY which
        ORDER BY CASE which WHEN 'highest' THEN -score ELSE score END, trace_id
    ) <= 10 AS overall
FROM chosen
JOIN scores USING (trace_id)
ORDER BY which, CASE which WHEN 'highest' THEN -score ELSE score END, trace_id;
