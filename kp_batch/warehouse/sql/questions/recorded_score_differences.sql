-- Group: live engines
-- Example: FROM recorded_score_differences;
CREATE VIEW recorded_score_differences AS
WITH recorded AS (
    SELECT
        task_domain,
        day_of(created_at) AS day,
        recorded_score = 0 AS is_placeholder,
        score,
        recorded_score,
        meets_threshold,
        recorded_score >= (
            SELECT json_extract_string(settings, 'threshold')::DOUBLE FROM manifest
        ) AS met_threshold
    FROM kp.scores
    WHERE recorded_score IS NOT NULL
),
ranked AS (
    SELECT
        *,
        (task_domain, day, is_placeholder) AS scope,
        average_rank(score, scope) AS place,
        average_rank(recorded_score, scope) AS recorded_place
    FROM recorded
)
SELECT
    task_domain,
    day,
    count(*) FILTER (NOT is_placeholder) AS traces,
    count(*) FILTER (is_placeholder) AS placeholders,
    avg(score - recorded_score) FILTER (NOT is_placeholder) AS mean_difference,
    avg(abs(score - recorded_score)) FILTER (NOT is_placeholder) AS mean_absolute_difference,
    rank_correlation(CASE WHEN NOT is_placeholder THEN place END, recorded_place)
        AS rank_correlation,
    count(*) FILTER (NOT is_placeholder AND meets_threshold AND NOT met_threshold) AS now_reaching,
    count(*) FILTER (NOT is_placeholder AND met_threshold AND NOT meets_threshold)
        AS no_longer_reaching
FROM ranked
GROUP BY ALL
ORDER BY ALL;

COMMENT ON VIEW recorded_score_differences IS 'How far are scores from those that live engines recorded? A row is a day (UTC) of a domain. A recorded 0 is a placeholder and is not compared. Means are null if there are only placeholders. The rank correlation is null if one side is constant.';
