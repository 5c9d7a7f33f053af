-- Traces enter a cache one by one, so that it has the last ones before each.
CREATE MACRO share_of_cache(cache, domain, place, size) AS count(*) OVER (
    PARTITION BY cache, domain ORDER BY place RANGE BETWEEN size PRECEDING AND 1 PRECEDING
) / greatest(size, 1);

COMMENT ON MACRO share_of_cache IS 'The share of the trace''s domain in its cache, by each trace''s place there; 0 if it was empty.';
