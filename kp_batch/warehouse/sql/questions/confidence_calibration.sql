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
)
SELECT
    errors.task_domain AS task_domain,
    errors.agent_id AS agent_id,
    traces,
    tasks,
    confidence AS stated,
    success AS happened,
    overconfidence,
    overconfidence_low,
    overconfidence_high,
    expected_error,
    brier_score,
    1 - brier_score / nullif(success * (1 - success), 0) AS brier_skill,
    constant
FROM errors
JOIN kp.means_by({'task_domain': task_domain, 'agent_id': agent_id}) AS means
    ON (errors.task_domain, errors.agent_id)
        IS NOT DISTINCT FROM (means.key.task_domain, means.key.agent_id)
ORDER BY ALL;

COMMENT ON VIEW confidence_calibration IS 'Is the stated confidence worth its weight? By domain and agent: stated against happened; overconfidence: their difference, with a 95% interval; expected_error: the mean gap over the ten bins of confidence_bins; the Brier score, and its skill over always stating the base rate, null where that is 0 or 1. constant: one value is stated always, which tells nothing.';
