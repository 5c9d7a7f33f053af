CREATE MACRO average_rank(value, scope) AS rank() OVER (PARTITION BY scope ORDER BY value)
    + (count(*) OVER (PARTITION BY scope, value) - 1) / 2;

COMMENT ON MACRO average_rank IS 'The rank of a value in its scope, from 1; equal values share their mean rank.';

-- 12 decimals, for the same reason as in score_mean.
CREATE MACRO correlation(a, b) AS round(nullif(corr(a, b), 'nan'::DOUBLE), 12);

COMMENT ON MACRO correlation IS 'Aggregate: Pearson''s correlation, to 12 decimal places; null if one side is constant.';

-- It repeats the other macro instead of calling it, so that it works in a catalog of any name.
CREATE MACRO rank_correlation(rank_a, rank_b) AS round(
    nullif(corr(rank_a, rank_b), 'nan'::DOUBLE), 12
);

COMMENT ON MACRO rank_correlation IS 'Aggregate: Spearman''s correlation, of two average ranks; otherwise as correlation.';
