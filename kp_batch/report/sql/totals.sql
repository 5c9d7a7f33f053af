-- One row about all scores together.
SELECT
    (settings->>'threshold')::DOUBLE AS threshold,
    (SELECT count(*) FROM labels) AS domains,
    first_day,
    last_day,
    same,
    alike,
    (
        SELECT coalesce(max(traces), 0)
        FROM (SELECT count(*) AS traces FROM scores_extract GROUP BY text_id)
        WHERE traces > 1
    ) AS most_repeated,
    (SELECT found FROM redundancy AS found) AS redundancy  -- null where nobody asked
FROM manifest
CROSS JOIN (SELECT min(day) AS first_day, max(day) AS last_day FROM scores_by_day)
CROSS JOIN (
    SELECT
        coalesce(sum(share) FILTER (similarity = 'the same'), 0) AS same,
        coalesce(sum(share) FILTER (similarity IN ('the same', '0.95 to the same')), 0) AS alike
    FROM novelty_by_similarity
);
