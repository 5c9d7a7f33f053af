-- Traces that came while their cache was warming up are compared only with each other, and so are the
-- other traces. The rest of the change comes from the number of the former. Weights are compared within
-- a profile, so that another mix of domains does not look like a change of weights.
CREATE MACRO parts_of_changes(keys, period, condition) AS TABLE
WITH sums AS (
    SELECT
        hash(*COLUMNS(kp.names(keys))) AS key,
        COLUMNS([period]) AS begins,
        profile,
        cache_warming_up,
        count(*) AS n,
        sum(score) AS score,
        sum(COLUMNS('from_.*')),
        sum(COLUMNS('weight_of_.*')),
        sum(COLUMNS(['complexity', 'novelty', 'tool_diversity', 'outcome_confidence']))
    FROM kp.trace_measures
    WHERE condition
    GROUP BY ALL
),
sides AS (
    SELECT
        key,
        kp.number_of_period(period, begins) + later AS number,
        later > 0 AS is_before,
        profile,
        cache_warming_up,
        sum(COLUMNS(* EXCLUDE (key, begins, profile, cache_warming_up, later)))
    FROM sums, range(5) AS of_periods(later)
    GROUP BY ALL
),
changes AS (
    SELECT
        key,
        number,
        sum(score) FILTER (NOT is_before) / sum(n) FILTER (NOT is_before)
        - sum(score) FILTER (is_before) / sum(n) FILTER (is_before) AS change
    FROM sides
    GROUP BY key, number
    HAVING change IS NOT NULL
),
of_warming_up AS (
    SELECT
        key, number, is_before, cache_warming_up, sum(n) AS n, sum(COLUMNS('from_.*')) / sum(n) AS '\0'
    FROM sides
    GROUP BY ALL
),
differences AS (
    SELECT key, number, sum(share * COLUMNS(* EXCLUDE (key, number, share))) AS '\0'
    FROM (
        SELECT
            now.key AS key,
            now.number AS number,
            (now.n / sum(now.n) OVER of_key + before.n / sum(before.n) OVER of_key) / 2 AS share,
            unnest(kp.part_differences(before, now))
        FROM of_warming_up AS now
        JOIN of_warming_up AS before
            ON (now.key, now.number, now.cache_warming_up)
                = (before.key, before.number, before.cache_warming_up)
            AND before.is_before AND NOT now.is_before
        WINDOW of_key AS (PARTITION BY now.key, now.number)
    )
    GROUP BY key, number
),
of_profile AS (
    SELECT
        key,
        number,
        is_before,
        profile,
        sum(COLUMNS('weight_of_.*')) / sum(n) AS '\0',
        sum(COLUMNS('^(complexity|novelty|tool_diversity|outcome_confidence)$'))
        / sum(sum(n)) OVER (PARTITION BY key, number, is_before) AS '\0'
    FROM sides
    GROUP BY key, number, is_before, profile
),
effects AS (
    SELECT key, number, sum(COLUMNS(* EXCLUDE (key, number)))
    FROM (
        SELECT now.key AS key, now.number AS number, unnest(kp.effects_of_weights(before, now))
        FROM of_profile AS now
        JOIN of_profile AS before
            ON (now.key, now.number) = (before.key, before.number)
            AND now.profile = before.profile
            AND before.is_before AND NOT now.is_before
    )
    GROUP BY key, number
)
SELECT
    changes.key AS key,
    changes.number AS number,
    struct_concat(
        kp.parts_of_difference(differences, effects),
        {'cache_warming_up': round(change - coalesce(list_sum(differences.each), 0), 12) + 0.0}
    ) AS parts
FROM changes
LEFT JOIN (
    SELECT *, list_value(*COLUMNS(* EXCLUDE (key, number))) AS each FROM differences
) AS differences USING (key, number)
LEFT JOIN effects ON (effects.key, effects.number) = (differences.key, differences.number);

COMMENT ON MACRO TABLE parts_of_changes IS 'Which parts does a change in score have, as in changes_by, by the hashes of the keys and the number of the period?';
