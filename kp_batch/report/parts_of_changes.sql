-- The parts of the told changes of a key, as the question changes_by has them.
-- Given: told; column and key, its name as an identifier and as a text; period and step, texts.
SELECT told.domain, told.begins, unnest(changes.parts)
FROM told
JOIN kp.parts_of_changes(
    [$key],
    $period,
    day >= (SELECT min(begins) - 4 * $step::INTERVAL FROM told)
    AND day < (SELECT max(begins) + $step::INTERVAL FROM told)
    AND $column IN (SELECT value FROM told)
) AS changes
    ON (changes.key, changes.number) = (hash(told.value), kp.number_of_period($period, told.begins));
