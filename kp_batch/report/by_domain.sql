-- Computes the moments of each domain's scores and of their parts, which can be combined over domains. Lists
-- the agents and frameworks of each domain.
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
    [
        {
            'part': 'complexity',
            'weight': avg(weight_of_complexity),
            'effect': avg(from_complexity),
            'covariance': covar_pop(from_complexity, score),
            'traces': NULL,
            'total': NULL
        },
        {
            'part': 'novelty',
            'weight': avg(weight_of_novelty),
            'effect': avg(from_novelty),
            'covariance': covar_pop(from_novelty, score),
            'traces': NULL,
            'total': NULL
        },
        {
            'part': 'tool diversity',
            'weight': avg(weight_of_tool_diversity),
            'effect': avg(from_tool_diversity),
            'covariance': covar_pop(from_tool_diversity, score),
            'traces': NULL,
            'total': NULL
        },
        {
            'part': 'outcome confidence',
            'weight': avg(weight_of_outcome_confidence),
            'effect': avg(from_outcome_confidence),
            'covariance': covar_pop(from_outcome_confidence, score),
            'traces': NULL,
            'total': NULL
        },
        {
            'part': 'single thought',
            'weight': NULL,
            'effect': avg(from_single_thought),
            'covariance': covar_pop(from_single_thought, score),
            'traces': count(*) FILTER (single_thought),
            'total': sum(from_single_thought) FILTER (single_thought)
        },
        {
            'part': 'recovery bonus',
            'weight': NULL,
            'effect': avg(from_recovery_bonus),
            'covariance': covar_pop(from_recovery_bonus, score),
            'traces': count(*) FILTER (recovery_bonus),
            'total': sum(from_recovery_bonus) FILTER (recovery_bonus)
        },
        {
            'part': 'low diversity penalty',
            'weight': NULL,
            'effect': avg(from_low_diversity_penalty),
            'covariance': covar_pop(from_low_diversity_penalty, score),
            'traces': count(*) FILTER (low_diversity_penalty),
            'total': sum(from_low_diversity_penalty) FILTER (low_diversity_penalty)
        }
    ] AS parts,
    list(DISTINCT agent_id) FILTER (agent_id IS NOT NULL) AS agents,
    list(DISTINCT framework) FILTER (framework IS NOT NULL) AS frameworks
FROM trace_measures
GROUP BY task_domain;
