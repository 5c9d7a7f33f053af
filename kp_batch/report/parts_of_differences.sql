-- The parts of the told differences, as the question differences_from_others has them.
-- Given: told; column and unit, the name of a column as an identifier and as a text.
SELECT told.domain, told.unit, unnest(others.parts)
FROM told
JOIN kp.unit_differences(
    'task_domain', $unit, ['score'], task_domain IN (SELECT value FROM told)
) AS others
    ON (others.task_domain, others.$column) = (told.value, told.unit);
