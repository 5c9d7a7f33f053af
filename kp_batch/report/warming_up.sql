-- Computes the share of traces that came while their cache was warming up, for each period and for the four
-- periods before it. Given: scores_by_day and period (a text).
CREATE OR REPLACE TEMP TABLE warming_up AS
SELECT
    domain,
    begins,
    cache_warming_up / traces AS warming_up,
    sum(cache_warming_up) OVER before / sum(traces) OVER before AS warming_up_before
FROM (
    SELECT
        domain,
        date_trunc($period, day)::DATE AS begins,
        number_of_period($period, begins) AS number,
        sum(traces) AS traces,
        sum(cache_warming_up) AS cache_warming_up
    FROM scores_by_day
    GROUP BY ALL
)
WINDOW before AS (PARTITION BY domain ORDER BY number RANGE BETWEEN 4 PRECEDING AND 1 PRECEDING);
