-- Group: between runs
-- Example: SELECT latest();
CREATE MACRO latest() AS (
    SELECT run_id FROM kp.runs WHERE status = 'done' ORDER BY number DESC LIMIT 1
);

COMMENT ON MACRO latest IS 'Which run is the last successful one? Null: there is none.';
