-- All units; unit_json, of those that were updated since a time, from an hour before: a transaction
-- commits later than it begins, which is when it says that it updates. A registry that quarantines a
-- unit, or clears it, leaves updated_at as it is: so all count that have ever been reported on.
SELECT
    id,
    CASE
        WHEN updated_at >= timestamptz $since - interval '1 hour'
            OR updated_at IS NULL
            OR unit.quarantine_status IS NOT NULL
            THEN coalesce(unit_json::text, 'null')
    END,
    to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    unit.quarantine_status
-- See knowledgepulse_state.sql.
FROM (SELECT NULL::text AS quarantine_status) AS older
CROSS JOIN LATERAL (SELECT id, unit_json, updated_at, quarantine_status FROM knowledge_units) AS unit
