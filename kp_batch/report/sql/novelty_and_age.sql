-- Traces by their novelty and by the age of the nearest trace; novelty is a sum, so that domains add up.
WITH bands (age, number, seconds) AS (
    VALUES
        ('<1 s', 0, 1),
        ('<1 min', 1, 60),
        ('<10 min', 2, 600),
        ('<1 h', 3, 3600),
        ('<6 h', 4, 21600),
        ('<1 d', 5, 86400),
        ('<7 d', 6, 604800),
        ('<30 d', 7, 2592000),
        ('≥30 d', 8, 'infinity'::DOUBLE)
),
binned AS (
    SELECT
        task_domain AS domain,
        bin_of(novelty, 10) / 10 AS low,
        nearest_age_s,
        novelty
    FROM scores
    WHERE nearest_age_s IS NOT NULL
)
SELECT
    domain,
    age,
    low,
    low + 0.1 AS high,
    count(*) AS traces,
    round(sum(novelty), 6) AS novelty
FROM binned
ASOF JOIN bands ON nearest_age_s < seconds
GROUP BY domain, age, number, low
ORDER BY number, domain, low;
