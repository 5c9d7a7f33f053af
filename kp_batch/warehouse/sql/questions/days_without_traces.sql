-- Group: data quality
-- Example: FROM days_without_traces;
CREATE VIEW days_without_traces AS
WITH days AS (
    SELECT DISTINCT day_of(created_at) AS day FROM kp.scores
),
gaps AS (
    SELECT day AS last_day, lead(day) OVER (ORDER BY day) AS next_day FROM days
)
SELECT last_day + 1 AS first_day, next_day - 1 AS last_day, next_day - gaps.last_day - 1 AS days
FROM gaps
WHERE next_day - gaps.last_day > 1
ORDER BY first_day;

COMMENT ON VIEW days_without_traces IS 'Which days (UTC) between the first and the last have no trace? A row is a gap.';
