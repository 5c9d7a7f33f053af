-- Group: live engines
-- Example: FROM implied_restarts(1e-6) LIMIT 10;
-- If the cache was empty here, too, the score equals `score_if_empty`. Then the recorded score is no sign of a
-- restart.
CREATE MACRO implied_restarts(tolerance) AS TABLE
SELECT
    trace_id,
    created_at,
    cache_group,
    agent_id,
    recorded_score,
    score,
    score_if_empty,
    cached_vectors,
    source_file
FROM (
    SELECT
        scores.*,
        kp.apply_overrides(
            kp.composite(
                scores.complexity, 0.5, scores.tool_diversity, scores.outcome_confidence,
                weights.complexity, weights.novelty, weights.tool_diversity,
                weights.outcome_confidence
            ),
            single_thought, recovery_bonus, low_diversity_penalty
        ) AS score_if_empty
    FROM kp.scores AS scores
    JOIN kp.profiles AS weights USING (profile_id)
    WHERE kp.shows_novelty(
        recorded_score, weights.novelty, single_thought, recovery_bonus, low_diversity_penalty
    )
) AS recorded
WHERE abs(recorded_score - score_if_empty) <= tolerance
    AND abs(recorded_score - score) > tolerance
ORDER BY created_at, trace_id;

COMMENT ON MACRO TABLE implied_restarts IS 'Which traces did a live engine score with an empty cache, as after a restart, although the cache here was not empty? A row is such a trace. Its recorded score depends on novelty. Within the tolerance, it equals the score with an empty cache, but not the published score.';
