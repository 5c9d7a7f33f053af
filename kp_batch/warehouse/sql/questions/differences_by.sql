-- Group: like with like
-- Example: FROM differences_by(framework, 'crewai', 'langgraph');
-- Each task counts once, by the mean of its attempts, so that nobody gains by easier tasks. A share
-- of few tasks is discrete, and may not vary at all: its interval is made of Wilson's for both sides.
CREATE MACRO differences_by(unit, a, b) AS TABLE
SELECT
    measure,
    tasks,
    mean_a,
    mean_b,
    difference,
    CASE
        WHEN measure <> 'success' THEN difference - margin
        ELSE difference - kp.of_both_sides(below_b, above_a, alike)
    END AS low,
    CASE
        WHEN measure <> 'success' THEN difference + margin
        ELSE difference + kp.of_both_sides(above_b, below_a, alike)
    END AS high
FROM (
    SELECT
        *,
        t * deviation / sqrt(tasks) AS margin,
        mean_a - kp.share_low(mean_a, tasks, t) AS below_a,
        kp.share_high(mean_a, tasks, t) - mean_a AS above_a,
        mean_b - kp.share_low(mean_b, tasks, t) AS below_b,
        kp.share_high(mean_b, tasks, t) - mean_b AS above_b
    FROM (
        SELECT
            measure,
            count(of_a) AS tasks,
            kp.student_t(count(of_a) - 1) AS t,
            avg(of_a) AS mean_a,
            avg(of_b) AS mean_b,
            avg(of_b - of_a) AS difference,
            stddev_samp(of_b - of_a) AS deviation,
            coalesce(nullif(corr(of_a, of_b), 'nan'::DOUBLE), 0) AS alike
        FROM unnest([
            'score', 'complexity', 'novelty', 'tool_diversity', 'outcome_confidence', 'success'
        ]) AS measures(measure)
        LEFT JOIN (
            SELECT unnest(means, recursive := true)
            FROM (
                SELECT [
                    {'measure': 'score', 'of_a': avg(score) FILTER (NOT is_b), 'of_b': avg(score) FILTER (is_b)},
                    {'measure': 'complexity', 'of_a': avg(complexity) FILTER (NOT is_b), 'of_b': avg(complexity) FILTER (is_b)},
                    {'measure': 'novelty', 'of_a': avg(novelty) FILTER (NOT is_b), 'of_b': avg(novelty) FILTER (is_b)},
                    {'measure': 'tool_diversity', 'of_a': avg(tool_diversity) FILTER (NOT is_b), 'of_b': avg(tool_diversity) FILTER (is_b)},
                    {'measure': 'outcome_confidence', 'of_a': avg(outcome_confidence) FILTER (NOT is_b), 'of_b': avg(outcome_confidence) FILTER (is_b)},
                    {'measure': 'success', 'of_a': avg(success::INTEGER) FILTER (NOT is_b), 'of_b': avg(success::INTEGER) FILTER (is_b)}
                ] AS means
                FROM (SELECT *, unit = b AS is_b FROM kp.scores WHERE unit IN (a, b))
                GROUP BY objective_hash
                HAVING count(DISTINCT is_b) = 2
            )
        ) AS of_tasks USING (measure)
        GROUP BY measure
    )
)
WHERE CASE
    WHEN a IS NOT DISTINCT FROM b OR a IS NULL OR b IS NULL
        THEN error('differences_by compares two different values, neither of them null')
    WHEN (SELECT count(DISTINCT unit) FROM kp.scores WHERE unit IN (a, b)) < 2
        THEN error('no trace has ' || CASE
            WHEN b IN (SELECT unit FROM kp.scores) THEN a ELSE b
        END || ', which was to be compared')
    ELSE true
END
ORDER BY list_position(
    ['score', 'complexity', 'novelty', 'tool_diversity', 'outcome_confidence', 'success'], measure
);

COMMENT ON MACRO TABLE differences_by IS 'On the tasks that both of two values of a column tried, by how much does b differ from a in score, in each dimension and in success? A task counts once; low and high: 95% intervals, null below 5 tasks.';
