-- The current row of every id that can have changed, and how these differ from what is published.
-- Given: the schema published (its tables), the table ids (more ids to look at), and the relations
-- files (the ledger as it is now) and staged (the facts of new content).

CREATE TEMP VIEW now AS FROM $files;

-- The rows of all content that was ever read.
CREATE TEMP VIEW facts AS
SELECT $columns FROM published.facts
UNION ALL
SELECT $columns FROM $staged;

CREATE TEMP TABLE moved AS
(SELECT source_file, file_id FROM now EXCEPT SELECT source_file, file_id FROM published.files)
UNION
(SELECT source_file, file_id FROM published.files EXCEPT SELECT source_file, file_id FROM now);

CREATE TEMP TABLE touched AS
SELECT DISTINCT trace_id FROM facts SEMI JOIN moved USING (file_id) WHERE len(reasons) = 0
UNION
FROM ids;

-- Of the rows with one id the last one counts (by file, then row).
CREATE TEMP TABLE current AS
SELECT facts.* EXCLUDE (reasons), now.source_file
FROM facts
JOIN now USING (file_id)
SEMI JOIN touched USING (trace_id)
WHERE len(facts.reasons) = 0
QUALIFY row_number() OVER (
    PARTITION BY trace_id ORDER BY now.source_file DESC, facts."row" DESC
) = 1;

-- What differs from the published scores: new, changed, and removed traces.
CREATE TEMP TABLE changed AS
SELECT trace_id, new.created_at AS created_at, old.created_at AS old_created_at
FROM current AS new
FULL JOIN (
    SELECT trace_id, created_at, content_hash, source_file, agent_id, framework
    FROM published.scores
    SEMI JOIN touched USING (trace_id)
) AS old USING (trace_id)
WHERE
    new.content_hash IS DISTINCT FROM old.content_hash
    OR new.source_file IS DISTINCT FROM old.source_file
    OR new.agent_id IS DISTINCT FROM old.agent_id
    OR new.framework IS DISTINCT FROM old.framework;

CREATE TEMP TABLE changes AS
SELECT
    (created_at AT TIME ZONE 'UTC')::DATE AS day,
    (old_created_at AT TIME ZONE 'UTC')::DATE AS old_day,
    count(*) AS traces
FROM changed
GROUP BY ALL;
