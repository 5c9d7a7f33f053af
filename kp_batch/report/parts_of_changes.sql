-- Splits some changes into parts, as the question changes_by does.
-- Given: the table asked, column and key (the name of a column, as an identifier and as a text), and the texts
-- period and step.
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
