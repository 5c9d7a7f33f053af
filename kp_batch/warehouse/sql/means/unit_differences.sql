-- Each task counts once, and so does each value on it. The others' results are a sum minus one's own, whose
-- last digits are noise, so correlations use 12 decimals. A share of few tasks is discrete, and may not vary
-- at all, so its interval combines Wilson's for both sides.
CREATE MACRO unit_differences(within, unit, measures, condition) AS TABLE
WITH units AS (
    FROM kp.key_values([within, unit], condition AND COLUMNS([unit]) IS NOT NULL)
),
own AS (
    SELECT COLUMNS([within]) AS scope, key, task, measure, n, total / n AS mean
    FROM kp.task_sums(
        [within, unit], measures, 'everything', condition AND COLUMNS([unit]) IS NOT NULL
    )
    JOIN units USING (key)
),
shared AS (
    SELECT own.*, (of_all - mean) / (units - 1) AS mean_of_others
    FROM own
    JOIN (
        SELECT scope, task, measure, count(*) AS units, sum(mean) AS of_all
        FROM own
        GROUP BY ALL
        HAVING count(*) > 1
    ) USING (scope, task, measure)
),
means AS (
    SELECT
        key,
        measure,
        sum(n)::BIGINT AS traces,
        count(*) AS tasks,
        avg(own.mean) AS mean,
        avg(own.mean_of_others) AS mean_of_others,
        avg(own.mean - own.mean_of_others) AS difference,
        kp.student_t(count(*) - 1) AS t,
        t * stddev_samp(own.mean - own.mean_of_others) / sqrt(count(*)) AS margin,
        coalesce(nullif(corr(own.mean, round(own.mean_of_others, 12)), 'nan'::DOUBLE), 0) AS alike
    FROM shared AS own
    GROUP BY key, measure
),
parts AS (
    FROM kp.parts_of_differences(
        within, unit, condition AND list_contains(kp.names(measures), 'score')
    )
)
SELECT
    units.* EXCLUDE (key),
    measure,
    traces,
    tasks,
    mean,
    mean_of_others,
    difference,
    difference - CASE
        WHEN kp.is_share(measure)
            THEN kp.margin_of_shares(mean, mean_of_others, tasks, t, alike)
        ELSE margin
    END AS low,
    difference + CASE
        WHEN kp.is_share(measure)
            THEN kp.margin_of_shares(mean_of_others, mean, tasks, t, alike)
        ELSE margin
    END AS high,
    CASE measure WHEN 'score' THEN parts.parts END AS parts
FROM units
JOIN means USING (key)
LEFT JOIN parts USING (key);

COMMENT ON MACRO TABLE unit_differences IS 'How does each value of a column differ from the others, on the tasks that others also attempted? differences_by and differences_from_others use this one.';
