-- The means of agents or frameworks, and how they differ from the others on the same tasks.
-- Given: unit, a column; the table of its pairs.
SELECT
    means.key.domain AS domain,
    means.key.unit AS unit,
    means.* EXCLUDE (key),
    effective_tasks,
    row_number() OVER (
        PARTITION BY means.key.domain ORDER BY means.traces DESC, means.key.unit
    ) AS place,
    paired.traces * getvariable('paired_in') AS shared_traces,
    paired.tasks * getvariable('paired_in') AS shared_tasks,
    score_difference,
    score_low,
    score_high,
    success_difference,
    paired.success_low AS success_difference_low,
    paired.success_high AS success_difference_high
FROM means({'domain': task_domain, 'unit': $unit}) AS means
LEFT JOIN effective_tasks({'domain': task_domain, 'unit': $unit}) AS effective USING (key)
LEFT JOIN ${unit}_pairs AS paired
    ON (means.key.domain, means.key.unit) = (paired.task_domain, paired.unit)
WHERE means.key.unit IS NOT NULL
ORDER BY domain, place;
