-- The parts of the told differences, as the question differences_from_others has them.
-- Given: told; unit, the name of a column.
SELECT told.domain, told.unit, unnest(others.parts)
FROM told
JOIN kp.parts_of_differences(
    'task_domain', $unit, task_domain IN (SELECT value FROM told)
) AS others
    ON others.key = hash(told.value, told.unit);
