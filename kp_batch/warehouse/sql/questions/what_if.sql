CREATE MACRO what_if(wc, wn, wd, wo) AS TABLE
WITH weighted AS (
    SELECT
        *,
        complexity * wc::DOUBLE + novelty * wn::DOUBLE + tool_diversity * wd::DOUBLE
            + outcome_confidence * wo::DOUBLE AS other_composite
    FROM scores
),
raised AS (
    SELECT
        *,
        CASE WHEN single_thought THEN 0.1 ELSE other_composite END AS start,
        CASE WHEN recovery_bonus THEN least(1, start + 0.1) ELSE start END AS before_penalty
    FROM weighted
)
SELECT
    trace_id,
    task_domain,
    score,
    CASE WHEN low_diversity_penalty THEN greatest(0, before_penalty - 0.1) ELSE before_penalty END
        AS other_score,
    other_score - score AS change
FROM raised;

COMMENT ON MACRO TABLE what_if IS 'What would every score be under other weights (complexity, novelty, tool diversity, outcome confidence), overrides included?';
