-- The jackknife takes a share of 0 or 1 as certain. So shares have Wilson's interval, and overconfidence has
-- the uncertainty of the success share: `alike` is the correlation of success and confidence, pulled to 0 by
-- four imaginary tasks.
CREATE MACRO intervals_of_means(sums) AS TABLE
WITH means AS (
    SELECT *, total / traces AS mean, pow(traces, 2) / squares AS effective_tasks
    FROM query_table(sums)
),
degrees AS (
    SELECT
        *,
        kp.student_t(effective_tasks - 1) AS t,
        kp.effective_traces(between_tasks, mean, traces, tasks, squares) AS share_of
    FROM means
),
uncertainties AS (
    SELECT
        *,
        t * sqrt((tasks - 1) / tasks * shift_squares) AS margin,
        CASE WHEN kp.is_share(measure) THEN mean - kp.share_low(mean, share_of, t) ELSE margin END
            AS below,
        CASE WHEN kp.is_share(measure) THEN kp.share_high(mean, share_of, t) - mean ELSE margin END
            AS above
    FROM degrees
),
of_both AS (
    SELECT
        *,
        max(below) FILTER (measure = 'success') OVER of_key AS success_below,
        max(above) FILTER (measure = 'success') OVER of_key AS success_above,
        max(margin) FILTER (measure = 'confidence') OVER of_key AS confidence_margin,
        max(shift_squares) FILTER (measure = 'success') OVER of_key AS success_squares,
        max(shift_squares) FILTER (measure = 'confidence') OVER of_key AS confidence_squares,
        (1 - 4 / tasks) * greatest(-1, least(1, coalesce(
            (success_squares + confidence_squares - shift_squares) / 2
            / nullif(sqrt(success_squares * confidence_squares), 0),
            0
        ))) AS alike
    FROM uncertainties
    WINDOW of_key AS (PARTITION BY key)
)
SELECT
    *,
    mean - CASE measure
        WHEN 'overconfidence' THEN kp.of_both_sides(confidence_margin, success_above, alike)
        ELSE below
    END AS low,
    mean + CASE measure
        WHEN 'overconfidence' THEN kp.of_both_sides(confidence_margin, success_below, alike)
        ELSE above
    END AS high
FROM of_both;

COMMENT ON MACRO TABLE intervals_of_means IS 'What are the means in a table of sums, with their intervals? A row of the table is a key and a measure, with traces, their total, tasks, and sums over the tasks: squares (n * n), between_tasks (total * total / n) and shift_squares (the squared change of the mean without the task). Overconfidence also needs the rows of success and confidence. means_by and the report use this one.';
