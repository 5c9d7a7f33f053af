-- Splits some differences into parts, as the question differences_from_others does.
-- Given: the table asked, and unit (the name of a column).
SELECT asked.domain, asked.unit, unnest(others.parts)
FROM asked
JOIN kp.parts_of_differences(
    'task_domain', $unit, task_domain IN (SELECT value FROM asked)
) AS others
    ON others.key = hash(asked.value, asked.unit);
