-- The change of the mean score of all domains together, from the four periods before to each period of the
-- span, and its parts. Given: changes, changed (the sums behind them), and step (a text).
WITH of_domains AS (FROM changed WHERE task_domain IS NOT NULL)
SELECT
    spans.domain,
    changes.* EXCLUDE (task_domain),
    mix,
    within,
    entered,
    exited,
    warming_up,
    warming_up_before,
    coalesce(begins + $step::INTERVAL <= getvariable('ended')::TIMESTAMP, true) AS is_over
FROM changes
LEFT JOIN splits_of_changes('of_domains') USING (begins)
JOIN spans
    ON spans.domain = getvariable('all_domains')
    AND begins + $step::INTERVAL > first_day AND begins <= last_day
JOIN warming_up USING (domain, begins)
WHERE task_domain IS NULL
ORDER BY begins;
