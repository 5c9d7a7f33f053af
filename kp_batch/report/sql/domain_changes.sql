-- By how much the mean score of each domain changed, and which moved by more than chance: of those with
-- labels of their own, within the span of all domains. Given: period and step, texts.
SELECT
    labels.domain AS domain,
    changes.* EXCLUDE (task_domain) REPLACE (
        traces * getvariable('one_in') AS traces,
        tasks * getvariable('one_in') AS tasks,
        traces_before * getvariable('one_in') AS traces_before,
        tasks_before * getvariable('one_in') AS tasks_before
    ),
    filling,
    filling_before,
    coalesce(changes.begins + $step::INTERVAL <= getvariable('ended')::TIMESTAMP, true) AS is_over
FROM kp.domain_changes($period) AS changes
JOIN labels USING (task_domain)
JOIN spans
    ON spans.domain = getvariable('all_domains')
    AND changes.begins + $step::INTERVAL > first_day AND changes.begins <= last_day
JOIN filling ON (filling.domain, filling.begins) = (labels.domain, changes.begins)
WHERE apart
ORDER BY labels.domain, changes.begins;
