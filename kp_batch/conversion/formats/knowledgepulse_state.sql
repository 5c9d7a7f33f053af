-- Up to which time units were updated, and a number that is another one if any is new, gone, updated
-- or reported on. A time to come is no mark: what is updated until then would not be seen.
SELECT
    to_char(
        max(updated_at) FILTER (WHERE updated_at <= now()) AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
    ),
    sum(
        hashtextextended(
            concat_ws(' ', id, extract(epoch FROM updated_at), unit.quarantine_status), 0
        )
    )::text
-- An older registry's table lacks this column: then the name is that of the row here.
FROM (SELECT NULL::text AS quarantine_status) AS older
CROSS JOIN LATERAL (SELECT id, updated_at, quarantine_status FROM knowledge_units) AS unit
