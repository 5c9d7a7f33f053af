-- The scores as a whole, in one row.
SELECT
    threshold,
    (SELECT count(*) FROM score_distribution) AS domains,
    (SELECT min(day) FROM scores_by_day) AS first_day,
    (SELECT max(day) FROM scores_by_day) AS last_day,
    (SELECT avg((coalesce(max_similarity, 0) >= 0.999999)::INTEGER) FROM scores) AS same,
    (SELECT avg((coalesce(max_similarity, 0) >= 0.95)::INTEGER) FROM scores) AS alike,
    (SELECT coalesce(max(traces), 0) FROM repeated_texts) AS most_repeated
FROM manifest;
