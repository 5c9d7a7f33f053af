-- Each task counts once, with the mean attempt of each value on it.
CREATE MACRO parts_of_differences(within, unit, condition) AS TABLE
WITH own AS (
    SELECT
        COLUMNS([within]) AS scope,
        hash(*COLUMNS(kp.names([within, unit]))) AS key,
        hash(objective_hash) AS task,
        avg(COLUMNS('from_.*')),
        avg(COLUMNS('weight_of_.*')),
        avg(COLUMNS(['complexity', 'novelty', 'tool_diversity', 'outcome_confidence']))
    FROM kp.trace_measures
    WHERE condition AND COLUMNS([unit]) IS NOT NULL
    GROUP BY ALL
),
of_all AS (
    SELECT scope, task, count(*) AS units, sum(COLUMNS(* EXCLUDE (scope, key, task)))
    FROM own
    GROUP BY scope, task
    HAVING count(*) > 1
),
pairs AS (
    SELECT key, kp.without(of_all, own, units) AS of_a, own AS of_b
    FROM own
    JOIN of_all USING (scope, task)
)
SELECT differences.key AS key, kp.parts_of_difference(differences, effects) AS parts
FROM (
    SELECT key, avg(COLUMNS(* EXCLUDE (key)))
    FROM (SELECT key, unnest(kp.part_differences(of_a, of_b)) FROM pairs)
    GROUP BY key
) AS differences
JOIN (
    SELECT key, avg(COLUMNS(* EXCLUDE (key)))
    FROM (SELECT key, unnest(kp.effects_of_weights(of_a, of_b)) FROM pairs)
    GROUP BY key
) AS effects USING (key);

COMMENT ON MACRO TABLE parts_of_differences IS 'Which parts does the difference of each value of a column from the others have, as in unit_differences, by the hashes of the keys?';
