-- Group: means
-- Example: FROM differences_by('framework', 'crewai', 'langgraph');
-- Each task counts once, with the mean of its attempts, so that easier tasks are no advantage.
CREATE MACRO differences_by(
    unit,
    a,
    b,
    measures := ['score', 'novelty', 'success', 'share_at_threshold'],
    condition := true
) AS TABLE
WITH asked AS (
    SELECT
        count(*) FILTER (COLUMNS([unit]) = a) AS of_a,
        count(*) FILTER (COLUMNS([unit]) = b) AS of_b
    FROM kp.trace_measures
    WHERE condition
)
SELECT
    measure,
    coalesce(tasks, 0) AS tasks,
    mean_of_others AS mean_a,
    mean AS mean_b,
    difference,
    low,
    high,
    parts
FROM (SELECT DISTINCT unnest(kp.names(measures)) AS measure)
LEFT JOIN (
    FROM kp.unit_differences(
        'everything', unit, measures, condition AND COLUMNS([unit]) IN (a, b)
    )
    WHERE COLUMNS([unit]) = b
) USING (measure)
CROSS JOIN asked
WHERE CASE
    WHEN a IS NOT DISTINCT FROM b OR a IS NULL OR b IS NULL
        THEN error('differences_by compares two different values, neither of them null')
    WHEN least(of_a, of_b) = 0
        THEN error('no trace has ' || CASE of_a WHEN 0 THEN a ELSE b END || ', which was to be compared')
    ELSE true
END
ORDER BY list_position(kp.names(measures), measure);

COMMENT ON MACRO TABLE differences_by IS 'By how much does the value b of a column differ from the value a, on the tasks that both attempted? A row is a measure. Each task counts once, across domains unless the condition picks one. low, high: a 95% interval of the difference, null below 5 tasks. parts sum to the difference in score.';
