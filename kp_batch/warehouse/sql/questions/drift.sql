-- Group: between runs
-- Example: FROM drift(previous(), latest());
CREATE MACRO drift(run_a, run_b) AS TABLE
SELECT
    a.task_domain,
    a.traces AS traces_a,
    b.traces AS traces_b,
    b.mean - a.mean AS mean_shift,
    b.p5 - a.p5 AS p5_shift,
    b.p25 - a.p25 AS p25_shift,
    b.p50 - a.p50 AS p50_shift,
    b.p75 - a.p75 AS p75_shift,
    b.p95 - a.p95 AS p95_shift,
    kp.stability_index(a.bins, b.bins) AS stability_index
FROM kp.distributions AS a
JOIN kp.distributions AS b ON a.task_domain IS NOT DISTINCT FROM b.task_domain
WHERE a.run_id = (SELECT
        CASE
            WHEN run_a IS NULL OR run_b IS NULL
                THEN error('drift compares two runs that are done, and one of these is null, as previous() is after the first run')
            WHEN count(DISTINCT run_id) = len(list_distinct([run_a, run_b])) THEN any_value(run_a)
            ELSE error('drift takes the full ids of two runs that are done: see kp-batch runs')
        END
    FROM kp.runs WHERE status = 'done' AND run_id IN (run_a, run_b))
    AND b.run_id = (SELECT
        CASE WHEN count(DISTINCT list_sort(json_keys(fingerprints, 'encoder_id'))) > 1
            THEN error('the scores of these runs do not compare: their encoders differ')
            ELSE any_value(run_b)
        END
    FROM kp.runs
    WHERE run_id IN (run_a, run_b) AND json_extract_string(counts, 'accepted')::BIGINT > 0)
ORDER BY a.task_domain NULLS FIRST;

COMMENT ON MACRO TABLE drift IS 'How did the scores change from one run to another? A row is a domain; null: all. stability_index: 0.1 is a small change, 0.25 a large one; null below 200 traces in either run.';
