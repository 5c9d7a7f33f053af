-- How many of the traces of each period, and of the four before, came while their cache was filling.
-- Given: scores_by_day; period, a text.
CREATE OR REPLACE TEMP TABLE filling AS
SELECT
    domain,
    begins,
    cache_filling / traces AS filling,
    sum(cache_filling) OVER before / sum(traces) OVER before AS filling_before
FROM (
    SELECT
        domain,
        date_trunc($period, day)::DATE AS begins,
        date_diff($period, DATE '2000-01-03', begins) AS number,
        sum(traces) AS traces,
        sum(cache_filling) AS cache_filling
    FROM scores_by_day
    GROUP BY ALL
)
WINDOW before AS (PARTITION BY domain ORDER BY number RANGE BETWEEN 4 PRECEDING AND 1 PRECEDING);
