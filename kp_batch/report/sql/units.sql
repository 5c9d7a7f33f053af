-- The means of agents or frameworks, and their differences from the others on the same tasks.
-- Given: unit (agent or framework), means and pairs.
SELECT
    domain,
    unit,
    means.* EXCLUDE ("by", domain, unit, start, bin, effective_tasks),
    effective_tasks,
    row_number() OVER (PARTITION BY domain ORDER BY means.traces DESC, unit) AS place,
    paired.traces AS shared_traces,
    paired.tasks AS shared_tasks,
    score_difference,
    score_low,
    score_high,
    success_difference,
    paired.success_low AS success_difference_low,
    paired.success_high AS success_difference_high
FROM means
LEFT JOIN pairs AS paired USING ("by", domain, unit)
WHERE "by" = '$unit'
ORDER BY domain, place;
