-- By how much the mean score of all domains together changed to each period from the four before, and why;
-- within the span. Given: period and step, texts.
SELECT
    spans.domain,
    changes.* REPLACE (
        traces * getvariable('one_in') AS traces,
        tasks * getvariable('one_in') AS tasks,
        traces_before * getvariable('one_in') AS traces_before,
        tasks_before * getvariable('one_in') AS tasks_before
    ),
    filling,
    filling_before,
    coalesce(begins + $step::INTERVAL <= getvariable('ended')::TIMESTAMP, true) AS is_over
FROM kp.mean_changes($period) AS changes
JOIN spans
    ON spans.domain = getvariable('all_domains')
    AND begins + $step::INTERVAL > first_day AND begins <= last_day
JOIN filling USING (domain, begins)
ORDER BY begins;
