-- Group: distribution
-- Example: FROM threshold_curve(20) WHERE threshold = 0.5;
-- `met`: how many of the thresholds 1/steps, 2/steps, ... 1 a score reaches. Rounding may change the product,
-- so its floor is corrected by a comparison of the score with the thresholds themselves.
CREATE MACRO threshold_curve(steps) AS TABLE
SELECT
    task_domain,
    step / steps AS threshold,
    (sum(coalesce(traces_that_met[step], 0)) OVER (PARTITION BY task_domain ORDER BY step DESC))::BIGINT
        AS reaching,
    reaching / traces AS share
FROM (
    SELECT task_domain, histogram(met) AS traces_that_met, count(*) AS traces
    FROM (
        SELECT
            task_domain,
            floor(score * steps)::BIGINT AS near,
            near + (score >= (near + 1) / steps)::BIGINT - (score < near / steps)::BIGINT AS met
        FROM kp.scores
    )
    GROUP BY task_domain
), range(0, steps::BIGINT + 1) AS steps_(step)
WHERE CASE
    WHEN steps >= 1 AND steps = floor(steps) THEN true
    ELSE error('threshold_curve takes a whole number of steps, 1 step at least')
END
ORDER BY task_domain, step;

COMMENT ON MACRO TABLE threshold_curve IS 'What share of each domain reaches a threshold? A row is a threshold in a domain, from 0 to 1 in this many steps.';
