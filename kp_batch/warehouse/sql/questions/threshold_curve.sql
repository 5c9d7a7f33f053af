-- Group: distribution
-- Example: FROM threshold_curve(20) WHERE threshold = 0.5;
-- `met`: how many of the thresholds 1/steps, 2/steps, ... 1 a score reaches. The product may be off
-- by a bit, so that its floor is put right by comparing the score with the thresholds themselves.
CREATE MACRO threshold_curve(steps) AS TABLE
WITH floored AS (
    SELECT task_domain, score, floor(score * steps) AS near FROM kp.scores
),
counted AS (
    SELECT
        task_domain,
        near + (score >= (near + 1) / steps)::INTEGER - (score < near / steps)::INTEGER AS met,
        count(*) AS traces
    FROM floored
    GROUP BY ALL
),
thresholds AS (
    SELECT task_domain, step, sum(traces) AS traces
    FROM (SELECT task_domain, sum(traces) AS traces FROM counted GROUP BY ALL),
        range(0, steps::BIGINT + 1) AS steps_(step)
    GROUP BY ALL
)
SELECT
    thresholds.task_domain,
    step / steps AS threshold,
    coalesce(sum(counted.traces), 0)::BIGINT AS reaching,
    reaching / any_value(thresholds.traces) AS share
FROM thresholds
LEFT JOIN counted
    ON counted.task_domain = thresholds.task_domain AND counted.met >= step
WHERE CASE
    WHEN steps >= 1 AND steps = floor(steps) THEN true
    ELSE error('threshold_curve takes a whole number of steps, 1 step at least')
END
GROUP BY thresholds.task_domain, step
ORDER BY thresholds.task_domain, step;

COMMENT ON MACRO TABLE threshold_curve IS 'Which share of each domain reaches a threshold, for thresholds from 0 to 1 in so many steps?';
