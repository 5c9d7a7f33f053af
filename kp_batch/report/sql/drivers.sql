-- The part of each dimension and override in the variance of the scores, and the total effect of each override.
-- Moments of several domains combine the moments of each with the distances between their means.
WITH own AS (
    SELECT
        scope AS domain,
        by_domain.* EXCLUDE (parts, agents, frameworks),
        unnest(parts) AS part
    FROM by_domain
    JOIN scopes USING (task_domain)
),
centred AS (
    SELECT
        *,
        mean - sum(traces * mean) OVER of_part / sum(traces) OVER of_part AS off,
        part.effect - sum(traces * part.effect) OVER of_part / sum(traces) OVER of_part AS off_effect
    FROM own
    WINDOW of_part AS (PARTITION BY domain, part.part)
)
SELECT
    domain,
    part.part AS part,
    any_value(part.weight) IS NULL AS is_override,
    sum(traces * part.weight) / sum(traces) AS weight,
    CASE WHEN min(least) < max(most) THEN
        sum(traces * (part.covariance + off_effect * off)) / sum(traces * (variance + off * off))
    END AS share_of_variance,
    sum(traces * part.effect) / sum(traces) AS effect_on_mean,
    nullif(sum(part.traces), 0)::BIGINT AS traces,
    sum(part.total) / nullif(sum(part.traces), 0) AS mean_effect,
    sum(part.total) AS total_effect
FROM centred
GROUP BY domain, part.part
ORDER BY domain, is_override, part;
