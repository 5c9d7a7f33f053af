-- Joins the touched traces with the published scores.
-- Given: current and touched_ids (see changes.py), and scores (the published files of the days of these ids).
CREATE TEMP TABLE diff AS
SELECT
    trace_id,
    new.created_at AS created_at,
    old.created_at AS old_created_at,
    new.text_hash AS text_hash,
    new.cache_group AS cache_group,
    old.cache_group AS old_cache_group,
    CASE WHEN new.created_at IS NULL THEN old.source_file END AS removed_from,
    old.content_hash AS old_content_hash,
    new.created_at IS NOT DISTINCT FROM old.created_at
    AND new.text_hash IS NOT DISTINCT FROM old.text_hash
    AND new.cache_group IS NOT DISTINCT FROM old.cache_group AS in_place,
    NOT in_place
    OR new.content_hash IS DISTINCT FROM old.content_hash
    OR new.source_file IS DISTINCT FROM old.source_file
    OR new.agent_id IS DISTINCT FROM old.agent_id
    OR new.framework IS DISTINCT FROM old.framework
    OR new.source_skill IS DISTINCT FROM old.source_skill
    OR new.recorded_score IS DISTINCT FROM old.recorded_score AS differs
FROM current AS new
FULL JOIN (
    SELECT
        trace_id,
        created_at,
        text_hash,
        content_hash,
        source_file,
        cache_group,
        agent_id,
        framework,
        source_skill,
        recorded_score
    FROM $scores
    WHERE hash(trace_id) IN (SELECT id FROM touched_ids)
) AS old USING (trace_id);

-- A table, not a condition: DuckDB knows the size of a table, and so plans joins well.
CREATE TEMP TABLE unchanged AS SELECT trace_id FROM diff WHERE NOT differs;
