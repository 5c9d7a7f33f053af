-- The change of the mean score of each domain that has a label of its own, within the span of all domains.
-- `moved`: whether chance alone does not explain the change. Given: changes and step (a text).
SELECT
    labels.domain AS domain,
    changes.* EXCLUDE (task_domain),
    p_value < 0.05 AS moved,
    warming_up,
    warming_up_before,
    coalesce(changes.begins + $step::INTERVAL <= getvariable('ended')::TIMESTAMP, true) AS is_over
FROM changes
JOIN labels USING (task_domain)
JOIN spans
    ON spans.domain = getvariable('all_domains')
    AND changes.begins + $step::INTERVAL > first_day AND changes.begins <= last_day
JOIN warming_up ON (warming_up.domain, warming_up.begins) = (labels.domain, changes.begins)
WHERE apart
ORDER BY labels.domain, changes.begins;
