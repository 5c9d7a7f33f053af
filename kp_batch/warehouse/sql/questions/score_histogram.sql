-- Group: distribution
-- Example: FROM score_histogram(20);
CREATE MACRO score_histogram(bins) AS TABLE
SELECT
    task_domain,
    kp.bin_of(score, bins) / bins AS low,
    (kp.bin_of(score, bins) + 1) / bins AS high,
    count(*) AS traces
FROM kp.scores
WHERE CASE
    WHEN bins >= 1 AND bins = floor(bins) THEN true
    ELSE error('score_histogram takes a whole number of bins, 1 bin at least')
END
GROUP BY ALL
ORDER BY ALL;

COMMENT ON MACRO TABLE score_histogram IS 'How many scores of each domain are in each bin of equal width? A row is a bin with scores, from low to high.';
