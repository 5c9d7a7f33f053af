-- Group: between runs
-- Example: SELECT previous();
CREATE MACRO previous() AS (
    SELECT run_id FROM kp.runs WHERE status = 'done' ORDER BY number DESC LIMIT 1 OFFSET 1
);

COMMENT ON MACRO previous IS 'Which successful run is before the last one? Null: there is none.';
