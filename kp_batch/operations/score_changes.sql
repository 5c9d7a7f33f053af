-- Splits the change of each score from one run to another into parts, over the ids in both.
-- Given, as SQL: before_scores and before_profiles (rows of the first run), and after_scores (rows of the
-- second run). Given as well: the catalog's macros.
WITH before_scores AS (
    SELECT s.*, p.complexity AS wc, p.novelty AS wn, p.tool_diversity AS wd,
        p.outcome_confidence AS wo
    FROM $before_scores AS s
    JOIN $before_profiles AS p USING (profile_id)
),
steps AS (
    SELECT
        b.trace_id,
        b.task_domain,
        a.score AS before_score,
        b.score AS after_score,
        a.single_thought AS was_single,
        b.single_thought AS is_single,
        a.composite AS composite_before,
        composite(
            b.complexity, a.novelty, b.tool_diversity, b.outcome_confidence, wc, wn, wd, wo
        ) AS with_facts,
        composite(
            b.complexity, b.novelty, b.tool_diversity, b.outcome_confidence, wc, wn, wd, wo
        ) AS with_novelty,
        b.composite AS with_weights
    FROM before_scores AS a
    JOIN $after_scores AS b USING (trace_id)
)
-- A single thought always scores 0.1. If a trace was one or becomes one, its whole change is an override's.
SELECT
    trace_id,
    task_domain,
    before_score,
    after_score,
    after_score - before_score AS change,
    CASE
        WHEN was_single AND is_single THEN 'both'
        WHEN was_single THEN 'before'
        WHEN is_single THEN 'after'
    END AS single_thought,
    CASE WHEN single_thought IS NULL THEN with_facts - composite_before ELSE 0 END AS from_facts,
    CASE WHEN single_thought IS NULL THEN with_novelty - with_facts ELSE 0 END AS from_novelty,
    CASE WHEN single_thought IS NULL THEN with_weights - with_novelty ELSE 0 END AS from_weights,
    CASE
        WHEN single_thought IS NULL
            THEN (after_score - with_weights) - (before_score - composite_before)
        ELSE after_score - before_score
    END AS from_overrides
FROM steps
