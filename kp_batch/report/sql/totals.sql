-- One row about all scores together.
SELECT
    (settings->>'threshold')::DOUBLE AS threshold,
    (SELECT count(*) FROM labels) AS domains,
    (SELECT min(day) FROM scores_by_day) AS first_day,
    (SELECT max(day) FROM scores_by_day) AS last_day,
    (SELECT coalesce(sum(share), 0) FROM novelty_by_similarity WHERE similarity = 'the same')
        AS same,
    (
        SELECT coalesce(sum(share), 0)
        FROM novelty_by_similarity
        WHERE similarity IN ('the same', '0.95 to the same')
    ) AS alike,
    (
        SELECT coalesce(max(traces), 0)
        FROM (SELECT count(*) AS traces FROM scores_extract GROUP BY text_id)
        WHERE traces > 1
    ) AS most_repeated
FROM manifest;
