-- Group: novelty
-- Example: FROM cache_beginnings WHERE filled_at IS NULL;
CREATE VIEW cache_beginnings AS
SELECT
    cache_group,
    count(*) AS traces,
    min(created_at) AS first_at,
    min(created_at) FILTER (NOT cache_warming_up) AS filled_at,
    count(*) FILTER (cache_warming_up) AS cache_warming_up,
    avg(novelty) FILTER (cache_warming_up) AS novelty_warming_up,
    avg(novelty) FILTER (NOT cache_warming_up) AS novelty_after
FROM kp.scores
GROUP BY cache_group
ORDER BY cache_group;

COMMENT ON VIEW cache_beginnings IS 'When did each cache first hold as many vectors as its size, or reach the age of its ttl? Until then, traces look too novel. A row is a cache. filled_at is null if this never happened.';
