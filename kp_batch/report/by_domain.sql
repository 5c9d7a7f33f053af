-- What each domain's scores sum to: the moments of their parts, which add up to those of several domains, and
-- how far they are from those that live engines recorded (a recorded 0 is a placeholder).
CREATE OR REPLACE TEMP TABLE by_domain AS
SELECT
    task_domain,
    count(*) AS traces,
    min(created_at) AS first,
    max(created_at) AS last,
    min(score) AS least,
    max(score) AS most,
    avg(score) AS mean,
    var_pop(score) AS variance,
    count(recorded_score) AS recorded,
    count(nullif(recorded_score, 0)) AS compared,
    sum(score - nullif(recorded_score, 0)) AS differences,
    sum(abs(score - nullif(recorded_score, 0))) AS absolute_differences,
    [
        {
            'part': 'complexity',
            'weight': avg(weights.complexity),
            'effect': avg(weights.complexity * scores.complexity),
            'covariance': covar_pop(weights.complexity * scores.complexity, score),
            'traces': NULL,
            'total': NULL
        },
        {
            'part': 'novelty',
            'weight': avg(weights.novelty),
            'effect': avg(weights.novelty * scores.novelty),
            'covariance': covar_pop(weights.novelty * scores.novelty, score),
            'traces': NULL,
            'total': NULL
        },
        {
            'part': 'tool diversity',
            'weight': avg(weights.tool_diversity),
            'effect': avg(weights.tool_diversity * scores.tool_diversity),
            'covariance': covar_pop(weights.tool_diversity * scores.tool_diversity, score),
            'traces': NULL,
            'total': NULL
        },
        {
            'part': 'outcome confidence',
            'weight': avg(weights.outcome_confidence),
            'effect': avg(weights.outcome_confidence * scores.outcome_confidence),
            'covariance': covar_pop(weights.outcome_confidence * scores.outcome_confidence, score),
            'traces': NULL,
            'total': NULL
        },
        {
            'part': 'single thought',
            'weight': NULL,
            'effect': avg(after_first - composite),
            'covariance': covar_pop(after_first - composite, score),
            'traces': count(*) FILTER (single_thought),
            'total': sum(after_first - composite) FILTER (single_thought)
        },
        {
            'part': 'recovery bonus',
            'weight': NULL,
            'effect': avg(after_second - after_first),
            'covariance': covar_pop(after_second - after_first, score),
            'traces': count(*) FILTER (recovery_bonus),
            'total': sum(after_second - after_first) FILTER (recovery_bonus)
        },
        {
            'part': 'low diversity penalty',
            'weight': NULL,
            'effect': avg(score - after_second),
            'covariance': covar_pop(score - after_second, score),
            'traces': count(*) FILTER (low_diversity_penalty),
            'total': sum(score - after_second) FILTER (low_diversity_penalty)
        }
    ] AS parts
FROM (
    SELECT
        *,
        kp.apply_single_thought(composite, single_thought) AS after_first,
        kp.apply_recovery_bonus(after_first, recovery_bonus) AS after_second
    FROM kp.scores
) AS scores
JOIN kp.profiles AS weights USING (profile_id)
GROUP BY task_domain;
