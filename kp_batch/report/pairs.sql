-- Compares agents and frameworks with the others on the same tasks, as the question differences_from_others
-- does. Each task counts once. Intervals are the catalog's. A value that never varies has correlation 0: its
-- squares are only rounding. Given: sums.
CREATE OR REPLACE TEMP TABLE pairs AS
SELECT
    "by",
    domain,
    unit,
    traces::BIGINT AS traces,
    tasks::BIGINT AS tasks,
    score_difference,
    score_difference - margin AS score_low,
    score_difference + margin AS score_high,
    success_difference,
    success_difference - margin_of_shares(success, success_of_others, tasks, t, alike) AS success_low,
    success_difference + margin_of_shares(success_of_others, success, tasks, t, alike) AS success_high
FROM (
    SELECT
        "by",
        domain,
        unit,
        paired_traces AS traces,
        paired_tasks AS tasks,
        paired_score_difference AS score_difference,
        paired_success AS success,
        paired_success_of_others AS success_of_others,
        paired_success - paired_success_of_others AS success_difference,
        student_t(paired_tasks - 1) AS t,
        t * sqrt(paired_score_squares / (paired_tasks - 1) / paired_tasks) AS margin,
        CASE WHEN least(paired_success_squares, paired_others_squares) > 1e-20
            THEN paired_products / sqrt(paired_success_squares * paired_others_squares)
            ELSE 0
        END AS alike
    FROM sums
    WHERE paired_tasks > 0
);
