-- Group: live engines
-- Example: FROM largest_score_differences LIMIT 10;
-- `implied_novelty`: the novelty that gives the recorded score, with the same weights and overrides. If it is
-- from 0 to 1, another cache can explain the difference: another size or ttl, clock or model.
-- It is null if novelty cannot be inferred: for a single thought, and if the recorded score is at the upper
-- bound, which is 1, or 0.9 with the penalty.
CREATE VIEW largest_score_differences AS
SELECT
    trace_id,
    created_at,
    task_domain,
    agent_id,
    recorded_score,
    score,
    score - recorded_score AS difference,
    scores.novelty,
    CASE
        WHEN NOT single_thought
            AND recorded_score < apply_low_diversity_penalty(1::DOUBLE, low_diversity_penalty)
            THEN scores.novelty + (
                recorded_score
                - (composite + 0.1 * recovery_bonus::INTEGER - 0.1 * low_diversity_penalty::INTEGER)
            ) / nullif(profiles.novelty, 0)
    END AS implied_novelty,
    max_similarity,
    nearest_trace_id,
    nearest_age_s,
    cached_vectors,
    single_thought,
    recovery_bonus,
    low_diversity_penalty,
    profile
FROM kp.scores AS scores
LEFT JOIN kp.profiles AS profiles USING (profile_id)
WHERE recorded_score <> 0
ORDER BY abs(difference) DESC, trace_id;

COMMENT ON VIEW largest_score_differences IS 'Which scores differ most from those of the live engine, and could novelty, the cache or an override explain it? A row is a trace. implied_novelty is the novelty that would give the recorded score. If it is from 0 to 1, another cache explains the difference.';
