CREATE MACRO bin_of(value, bins) AS least(floor(value * bins), bins - 1);

COMMENT ON MACRO bin_of IS 'The number, from 0, of the bin of a value in 0..1. The bins have equal width; 1 is in the last bin.';

CREATE MACRO score_bins(score) AS list_transform(
    range(10), lambda bin: coalesce(histogram(kp.bin_of(score, 10)::INTEGER)[bin], 0)::BIGINT
);

COMMENT ON MACRO score_bins IS 'Aggregate: the number of scores in each of ten bins of equal width.';

CREATE MACRO score_quantiles(score) AS quantile_cont(score, [0.05, 0.25, 0.5, 0.75, 0.95]);

COMMENT ON MACRO score_quantiles IS 'Aggregate: the quantiles 0.05, 0.25, 0.5, 0.75 and 0.95 of the scores, interpolated linearly.';

-- Threads add in any order, which changes the last digits of a sum; 12 decimals hide that.
CREATE MACRO score_mean(score) AS round(avg(score), 12);

COMMENT ON MACRO score_mean IS 'Aggregate: the mean of the scores, to 12 decimal places.';
