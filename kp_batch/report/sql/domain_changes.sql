-- By how much the mean score of each domain changed, and which moved by more than chance: of those with labels
-- of their own, within the span of all domains. Given: changes; step, a text.
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
