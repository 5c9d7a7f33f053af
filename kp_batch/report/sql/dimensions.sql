-- Mean and sample standard deviation of each dimension, by domain.
WITH unpivoted AS (
    UNPIVOT (SELECT task_domain, complexity, novelty, tool_diversity, outcome_confidence FROM scores)
    ON COLUMNS (* EXCLUDE (task_domain))
    INTO NAME dimension VALUE size
)
SELECT
    domain,
    replace(dimension, '_', ' ') AS dimension,
    avg(size) AS mean,
    stddev_samp(size) AS deviation
FROM unpivoted
JOIN labels USING (task_domain)
GROUP BY ALL
ORDER BY ALL;
