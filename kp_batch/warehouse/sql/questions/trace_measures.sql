-- Group: means
-- Example: FROM trace_measures ORDER BY from_novelty DESC LIMIT 10;
CREATE VIEW trace_measures AS
WITH placed AS (
    SELECT
        *,
        apply_single_thought(composite, single_thought) AS after_first,
        apply_recovery_bonus(after_first, recovery_bonus) AS after_second,
        row_number() OVER (PARTITION BY cache_group ORDER BY created_at, trace_id) AS place
    FROM kp.scores
)
SELECT
    trace_id,
    created_at,
    day_of(created_at) AS day,
    date_trunc('week', day)::DATE AS week,
    date_trunc('month', day)::DATE AS month,
    date_trunc('quarter', day)::DATE AS quarter,
    date_trunc('year', day)::DATE AS year,
    'all' AS everything,
    task_domain,
    agent_id,
    framework,
    source_skill,
    profile,
    cache_group,
    objective_hash,
    single_thought,
    recovery_bonus,
    low_diversity_penalty,
    bin_of(score, 10) / 10 AS score_bin,
    bin_of(confidence, 10) / 10 AS confidence_bin,
    score,
    trace.complexity * weights.complexity AS from_complexity,
    trace.novelty * weights.novelty AS from_novelty,
    trace.tool_diversity * weights.tool_diversity AS from_tool_diversity,
    trace.outcome_confidence * weights.outcome_confidence AS from_outcome_confidence,
    after_first - composite AS from_single_thought,
    after_second - after_first AS from_recovery_bonus,
    score - after_second AS from_low_diversity_penalty,
    trace.complexity AS complexity,
    trace.novelty AS novelty,
    trace.tool_diversity AS tool_diversity,
    trace.outcome_confidence AS outcome_confidence,
    weights.complexity AS weight_of_complexity,
    weights.novelty AS weight_of_novelty,
    weights.tool_diversity AS weight_of_tool_diversity,
    weights.outcome_confidence AS weight_of_outcome_confidence,
    n_tools AS tools,
    success::INTEGER AS success,
    confidence,
    confidence - success::INTEGER AS overconfidence,
    meets_threshold::INTEGER AS share_at_threshold,
    coalesce(max_similarity >= 0.95, false)::INTEGER AS near_repeats,
    cache_warming_up::INTEGER AS cache_warming_up,
    share_of_cache(cache_group, task_domain, place, cached_vectors) AS cache_share_of_domain
FROM placed AS trace
JOIN kp.profiles AS weights USING (profile_id);

COMMENT ON VIEW trace_measures IS 'Which measures of each trace can be averaged, and by which keys can traces be grouped? A row is a trace. The columns from score on are measures, those before it keys. from_complexity to from_low_diversity_penalty sum to the score. near_repeats: a similarity of 0.95 or more in its cache. cache_share_of_domain: the share of its own domain in its cache; 0 if the cache was empty. Bins are 0.1 wide, named by their lower end.';
