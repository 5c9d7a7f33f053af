-- Traces come one after the other in a cache, so that it holds the last ones before each.
CREATE MACRO share_of_cache(cache, domain, place, size) AS count(*) OVER (
    PARTITION BY cache, domain ORDER BY place RANGE BETWEEN size PRECEDING AND 1 PRECEDING
) / greatest(size, 1);

COMMENT ON MACRO share_of_cache IS 'Which share of the traces that the cache of a trace held were of its domain, given the place of each in its cache; 0 where it was empty.';
