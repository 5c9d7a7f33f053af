-- The scores as a whole, in one row.
SELECT
    threshold,
    (SELECT count(*) FROM score_distribution) AS domains,
    (SELECT min(day) FROM scores_by_day) AS first_day,
    (SELECT max(day) FROM scores_by_day) AS last_day,
    (SELECT count(*) FILTER (max_similarity >= 0.999999) / greatest(count(*), 1) FROM scores)
        AS same,
    (SELECT count(*) FILTER (max_similarity >= 0.95) / greatest(count(*), 1) FROM scores) AS alike,
    (SELECT coalesce(max(traces), 0) FROM repeated_texts) AS most_repeated
FROM manifest;
