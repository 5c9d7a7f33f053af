-- The number of scores in each of twenty bins.
SELECT domain, bin / 20 AS low, low + 0.05 AS high, traces
FROM score_bins
ORDER BY ALL;
