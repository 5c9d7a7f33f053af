-- Group: what if
-- Example: FROM what_if(0.25, 0.25, 0.25, 0.25) ORDER BY change DESC LIMIT 10;
-- The parameters must not have the names of columns, which would be ambiguous in DuckDB.
CREATE MACRO what_if(
    weight_of_complexity,
    weight_of_novelty,
    weight_of_tool_diversity,
    weight_of_outcome_confidence
) AS TABLE
WITH weighted AS (
    SELECT
        trace_id,
        task_domain,
        kp.apply_overrides(
            kp.composite(
                complexity, novelty, tool_diversity, outcome_confidence,
                weight_of_complexity::DOUBLE, weight_of_novelty::DOUBLE,
                weight_of_tool_diversity::DOUBLE, weight_of_outcome_confidence::DOUBLE
            ),
            single_thought, recovery_bonus, low_diversity_penalty
        ) AS score,
        score AS published_score
    FROM kp.scores
    -- The same rule as for the weights of a profile: other weights do not give a score.
    WHERE CASE
        WHEN least(
            weight_of_complexity, weight_of_novelty, weight_of_tool_diversity,
            weight_of_outcome_confidence
        ) >= 0
            AND abs(
                weight_of_complexity + weight_of_novelty + weight_of_tool_diversity
                + weight_of_outcome_confidence - 1
            ) <= 1e-9
            THEN true
        ELSE error('the weights of what_if must sum to 1, and none be below 0')
    END
)
SELECT *, score - published_score AS change
FROM weighted;

COMMENT ON MACRO TABLE what_if IS 'What would every score be under other weights, overrides included? A row is a trace; score is the score under these weights.';
