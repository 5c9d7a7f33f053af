-- Group: means
-- Example: FROM mean_changes('week') ORDER BY begins DESC LIMIT 10;
CREATE MACRO mean_changes(period, condition := true) AS TABLE
WITH sums AS (
    SELECT
        task_domain,
        COLUMNS([period]) AS begins,
        kp.number_of_period(period, begins) AS number,
        count(*) AS traces,
        sum(score) AS total
    FROM kp.trace_measures
    WHERE condition
    GROUP BY ALL
)
SELECT changes.* EXCLUDE (everything, measure, adjusted_p_value), mix, within, entered, exited
FROM kp.changes_by('everything', period, ['score'], condition) AS changes
LEFT JOIN kp.splits_of_changes('sums') USING (begins)
ORDER BY begins;

COMMENT ON MACRO TABLE mean_changes IS 'Why does the mean of all scores in a period differ from that of the four periods before? A row is a period. Columns as in changes_by; four more sum to the change: mix (other shares of the domains), within (changes inside the domains on both sides), entered and exited (domains on one side only). These are null if no domain is on both sides.';
