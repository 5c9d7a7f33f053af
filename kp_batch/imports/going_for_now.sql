-- What is replaced in a day that gains a trace, or is gone: what moves to another day stays yet.
SELECT stands.id
FROM stands LEFT JOIN new ON stands.id = new.id
WHERE stands.day = ? AND (new.day IS NULL OR new.day = stands.day)
