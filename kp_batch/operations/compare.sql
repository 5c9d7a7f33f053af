-- Compares the scores of two runs, over the ids in both.
-- Given: the schemas before and after (the tables of each run), the table score_changes (see
-- score_changes.sql), the variables before_threshold, after_threshold and goes_back (whether the second
-- state is older than the first), and the catalog's macros.

CREATE TEMP VIEW reaching AS
SELECT
    *,
    before_score >= getvariable('before_threshold') AS reached,
    after_score >= getvariable('after_threshold') AS reaches,
    after_score >= getvariable('before_threshold') AS would_reach -- with the first threshold
FROM score_changes;

-- The traces that crossed the threshold: up, if they reach it now.
CREATE TEMP VIEW crossed AS
SELECT
    trace_id,
    task_domain,
    CASE WHEN reaches THEN 'up' ELSE 'down' END AS crossed,
    would_reach = reached AS by_threshold,
    * EXCLUDE (trace_id, task_domain, reached, reaches, would_reach)
FROM reaching
WHERE reached <> reaches
ORDER BY trace_id;

CREATE TEMP TABLE domains AS
WITH scoped AS (
    SELECT task_domain AS scope, * FROM reaching
    UNION ALL
    SELECT NULL AS scope, * FROM reaching
),
-- The ranks have their own query: otherwise all other columns would be sorted with them.
ranked AS (
    SELECT
        scope,
        average_rank(before_score, scope) AS before_rank,
        average_rank(after_score, scope) AS after_rank
    FROM scoped
),
correlated AS (
    SELECT scope, rank_correlation(before_rank, after_rank) AS rank_correlation
    FROM ranked
    GROUP BY scope
),
moves AS (
    SELECT
        scope,
        count(*) AS traces,
        score_mean(before_score) AS before_mean,
        score_mean(after_score) AS after_mean,
        score_mean(abs(after_score - before_score)) AS mean_absolute_change,
        score_quantiles(before_score) AS before_quantiles,
        score_quantiles(after_score) AS after_quantiles,
        stability_index(score_bins(before_score), score_bins(after_score)) AS stability_index,
        count(*) FILTER (after_score > before_score) AS rose,
        count(*) FILTER (after_score < before_score) AS fell,
        count(*) FILTER (after_score = before_score) AS stayed,
        count(*) FILTER (NOT reached AND reaches) AS now_reach,
        count(*) FILTER (NOT reached AND reaches AND NOT would_reach) AS now_reach_by_threshold,
        count(*) FILTER (reached AND NOT reaches) AS no_longer_reach,
        count(*) FILTER (reached AND NOT reaches AND would_reach) AS no_longer_reach_by_threshold,
        score_mean(from_facts) AS from_facts,
        score_mean(from_novelty) AS from_novelty,
        score_mean(from_weights) AS from_weights,
        score_mean(from_overrides) AS from_overrides,
        count(single_thought) AS single_thoughts
    FROM scoped
    GROUP BY scope
)
SELECT moves.scope AS task_domain, moves.* EXCLUDE (scope), rank_correlation
FROM moves
JOIN correlated ON moves.scope IS NOT DISTINCT FROM correlated.scope
ORDER BY task_domain NULLS FIRST;

CREATE TEMP TABLE movers AS
FROM score_changes WHERE change <> 0 ORDER BY abs(change) DESC, trace_id LIMIT 100;

-- The movers as the second run scored them.
CREATE TEMP VIEW moved AS
SELECT trace_id, source_file, content_hash FROM movers JOIN after.scores USING (trace_id);

-- Counts the changes of the archive's files as a run does: see `FileChanges`. A file_id identifies the
-- content of a file, and ends with the version of the facts. If the second state is older than the first
-- (goes_back), a file that it lacks is neither gone nor pruned: it had not been read yet.
CREATE MACRO content(file_id) AS regexp_replace(file_id, '-v[0-9]+$', '');

CREATE TEMP TABLE file_changes AS
SELECT
    count(*) FILTER (a.source_file IS NULL AND b.file_id IS NOT NULL) AS new,
    count(*) FILTER (
        a.source_file IS NOT NULL
        AND b.file_id IS NOT NULL
        AND content(a.file_id) IS DISTINCT FROM content(b.file_id)
    ) AS changed,
    count(*) FILTER (
        a.status <> 'read' AND b.status = 'read' AND content(a.file_id) = content(b.file_id)
    ) AS back,
    count(*) FILTER (
        (a.status <> 'gone' AND b.status = 'gone')
        OR (
            a.status NOT IN ('gone', 'excluded')
            AND b.source_file IS NULL
            AND NOT getvariable('goes_back')
        )
    ) AS gone,
    count(*) FILTER (
        coalesce(a.status, 'gone') <> 'unreadable' AND b.status = 'unreadable'
    ) AS unreadable,
    count(*) FILTER (left_out AND NOT getvariable('goes_back')) AS pruned,
    count(*) FILTER (left_out AND getvariable('goes_back')) AS unread,
    count(*) FILTER (a.status <> 'excluded' AND b.status = 'excluded') AS excluded
FROM before.files AS a
FULL JOIN after.files AS b USING (source_file)
CROSS JOIN LATERAL (SELECT a.file_id IS NOT NULL AND b.file_id IS NULL AS left_out);
