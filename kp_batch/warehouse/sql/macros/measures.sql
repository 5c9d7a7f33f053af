CREATE MACRO is_share(measure) AS measure IN (
    'success', 'share_at_threshold', 'near_repeats', 'cache_warming_up',
    'single_thought', 'recovery_bonus', 'low_diversity_penalty'
);

COMMENT ON MACRO is_share IS 'Whether a measure counts traces, so that its mean is a share.';
