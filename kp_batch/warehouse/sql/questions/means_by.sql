-- Group: means
-- Example: FROM means_by(['framework', 'profile'], ['score', 'success']);
-- Attempts at one task are alike: the units that were drawn are tasks, not traces. The squares are of
-- what a mean changes by without one of them, the jackknife's. The jackknife takes a share of 0 or 1
-- for certain, so that shares have Wilson's interval, and overconfidence has the doubt of the success
-- share: `alike` is how success goes with confidence, pulled to 0 by four tasks of which nothing is known.
CREATE MACRO means_by(
    keys,
    measures := ['score', 'novelty', 'success', 'share_at_threshold'],
    condition := true
) AS TABLE
WITH sums AS (
    FROM kp.task_sums(
        keys,
        kp.names(measures) || CASE
            WHEN list_contains(kp.names(measures), 'overconfidence') THEN ['confidence', 'success']
            ELSE []
        END,
        'everything',
        condition
    )
),
totals AS (
    SELECT
        key,
        measure,
        sum(n)::BIGINT AS traces,
        count(*) AS tasks,
        sum(total) / sum(n) AS mean,
        sum(n * n)::DOUBLE AS squares,
        sum(total * total / n) AS between_tasks
    FROM sums
    GROUP BY ALL
),
doubts AS (
    SELECT
        totals.*,
        kp.student_t(traces * traces / squares - 1) AS t,
        shift_squares,
        kp.is_share(measure) AS is_share,
        kp.effective_traces(
            kp.intraclass_correlation(between_tasks, mean, traces, tasks, squares),
            traces, tasks, squares
        ) AS share_of,
        t * sqrt((tasks - 1) / tasks * shift_squares) AS margin,
        CASE WHEN is_share THEN mean - kp.share_low(mean, share_of, t) ELSE margin END AS below,
        CASE WHEN is_share THEN kp.share_high(mean, share_of, t) - mean ELSE margin END AS above
    FROM totals
    JOIN (
        SELECT key, measure, sum(pow((n * mean - total) / (traces - n), 2)) AS shift_squares
        FROM sums
        JOIN totals USING (key, measure)
        GROUP BY ALL
    ) USING (key, measure)
),
of_success AS (
    SELECT
        key,
        max(below) FILTER (measure = 'success') AS below,
        max(above) FILTER (measure = 'success') AS above,
        max(margin) FILTER (measure = 'confidence') AS margin,
        max(shift_squares) FILTER (measure = 'success') AS of_success,
        max(shift_squares) FILTER (measure = 'confidence') AS of_confidence,
        max(shift_squares) FILTER (measure = 'overconfidence') AS of_both,
        (1 - 4 / any_value(tasks)) * greatest(-1, least(1, coalesce(
            (of_success + of_confidence - of_both) / 2
            / nullif(sqrt(of_success * of_confidence), 0),
            0
        ))) AS alike
    FROM doubts
    GROUP BY key
)
SELECT
    keys_.* EXCLUDE (key),
    measure,
    traces,
    tasks,
    mean,
    mean - CASE measure
        WHEN 'overconfidence'
            THEN kp.of_both_sides(of_success.margin, of_success.above, of_success.alike)
        ELSE doubts.below
    END AS low,
    mean + CASE measure
        WHEN 'overconfidence'
            THEN kp.of_both_sides(of_success.margin, of_success.below, of_success.alike)
        ELSE doubts.above
    END AS high
FROM kp.key_values(keys, condition) AS keys_
JOIN doubts USING (key)
JOIN of_success USING (key)
WHERE list_contains(kp.names(measures), measure)
ORDER BY COLUMNS(kp.names(keys)), list_position(kp.names(measures), measure);

COMMENT ON MACRO TABLE means_by IS 'What are the means of some measures of trace_measures, for the traces that are alike in these columns, and how far can they be trusted? low and high: 95% intervals for tasks drawn anew under the same history, null below 5 effective tasks. A condition picks traces.';
