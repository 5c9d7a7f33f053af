-- Group: dimensions
-- Example: FROM confidence_calibration WHERE NOT constant;
CREATE VIEW confidence_calibration AS
WITH bins AS (
    SELECT
        task_domain,
        agent_id,
        abs(sum(confidence - success::INTEGER)) AS error,
        count(*) AS traces,
        sum(pow(confidence - success::INTEGER, 2)) AS squares,
        min(confidence) AS least,
        max(confidence) AS greatest
    FROM kp.scores
    GROUP BY task_domain, agent_id, bin_of(confidence, 10)
),
errors AS (
    SELECT
        task_domain,
        agent_id,
        sum(error) / sum(traces) AS expected_error,
        sum(squares) / sum(traces) AS brier_score,
        min(least) = max(greatest) AS constant
    FROM bins
    GROUP BY task_domain, agent_id
),
means AS (
    SELECT
        task_domain,
        agent_id,
        any_value(traces) AS traces,
        any_value(tasks) AS tasks,
        any_value(mean) FILTER (measure = 'confidence') AS mean_confidence,
        any_value(mean) FILTER (measure = 'success') AS success_rate,
        any_value(mean) FILTER (measure = 'overconfidence') AS overconfidence,
        any_value(low) FILTER (measure = 'overconfidence') AS overconfidence_low,
        any_value(high) FILTER (measure = 'overconfidence') AS overconfidence_high
    FROM kp.means_by(['task_domain', 'agent_id'], ['confidence', 'success', 'overconfidence'])
    GROUP BY task_domain, agent_id
)
SELECT
    means.*,
    expected_error,
    brier_score,
    1 - brier_score / nullif(success_rate * (1 - success_rate), 0) AS brier_skill,
    constant
FROM errors
JOIN means
    ON (errors.task_domain, errors.agent_id)
        IS NOT DISTINCT FROM (means.task_domain, means.agent_id)
ORDER BY ALL;

COMMENT ON VIEW confidence_calibration IS 'Does the reported confidence match the success rate? A row is an agent in a domain. overconfidence: mean_confidence - success_rate, with a 95% interval. expected_error: the mean gap over ten bins of confidence. brier_skill: 1 minus the ratio of brier_score to the Brier score of always reporting the success rate; null if that rate is 0 or 1. constant: every trace reports the same confidence.';
