-- The same as AT TIME ZONE 'UTC', but without a calendar of time zones, which takes five times as long.
CREATE MACRO day_of(moment) AS make_timestamp(epoch_us(moment))::DATE;

COMMENT ON MACRO day_of IS 'The day of a time, in UTC.';
