-- The parts of some changes, as the question changes_by has them.
-- Given: asked; column and key, its name as an identifier and as a text; period and step, texts.
SELECT asked.domain, asked.begins, unnest(changes.parts)
FROM asked
JOIN kp.parts_of_changes(
    [$key],
    $period,
    day >= (SELECT min(begins) - 4 * $step::INTERVAL FROM asked)
    AND day < (SELECT max(begins) + $step::INTERVAL FROM asked)
    AND $column IN (SELECT value FROM asked)
) AS changes
    ON (changes.key, changes.number) = (hash(asked.value), kp.number_of_period($period, asked.begins));
