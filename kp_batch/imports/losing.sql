-- The days of which a trace goes: it is in no day by now, or in another one.
SELECT DISTINCT stands.day
FROM stands ANTI JOIN new ON stands.id = new.id AND stands.day = new.day
ORDER BY day
