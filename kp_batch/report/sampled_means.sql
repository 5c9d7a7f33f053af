-- Whether a sample tells the doubt of a mean: where it is further off than chance makes it, some tasks with
-- many of the traces are in it with all of these, or with none.
CREATE OR REPLACE TEMP MACRO fits(own, of_sample, low, high) AS abs(own - of_sample) <= high - low + 1e-9;

CREATE OR REPLACE TEMP MACRO end_of(own, of_sample, low, high, which) AS
    CASE WHEN fits(own, of_sample, low, high) THEN own + (which - of_sample) / sqrt($narrower) END;

-- n / (t * t) of Wilson's interval of a share, by that of its ends which is not 0 or 1: the square of how far
-- an end is from the share is end * (1 - end) * t * t / n.
CREATE OR REPLACE TEMP MACRO size_of(own, of_sample, low, high) AS CASE
    WHEN NOT fits(own, of_sample, low, high) THEN NULL
    WHEN of_sample > 0.5 THEN $narrower * low * (1 - low) / pow(of_sample - low, 2)
    ELSE $narrower * high * (1 - high) / pow(high - of_sample, 2)
END;

CREATE OR REPLACE TEMP MACRO two_digits(number) AS
    round(number, 1 - floor(log10(greatest(number, 10)))::INTEGER)::BIGINT;

-- As means_by, of more traces than it is asked of: means of all of them, whose doubt is that of one in so
-- many tasks, made narrower by the root of that; but not where there are frequent tasks, as these are in the
-- sample. The tasks are estimated of all traces, by about three in a hundred, as to count them
-- exactly takes twenty seconds and much memory of ten million: so two digits of the number are told.
-- Given: narrower, a number. traces: a view that has the keys.
CREATE OR REPLACE TEMP MACRO means(keys, traces := 'scoped') AS TABLE
SELECT
    own.key AS key,
    own.traces AS traces,
    own.tasks AS tasks,
    own.mean AS mean,
    end_of(own.mean, of_sample.mean, low, high, low) AS low,
    end_of(own.mean, of_sample.mean, low, high, high) AS high,
    own.novelty AS novelty,
    end_of(own.novelty, of_sample.novelty, novelty_low, novelty_high, novelty_low) AS novelty_low,
    end_of(own.novelty, of_sample.novelty, novelty_low, novelty_high, novelty_high) AS novelty_high,
    own.cache_filling AS cache_filling,
    own.success AS success,
    share_low(own.success, size_of(own.success, of_sample.success, success_low, success_high), 1)
        AS success_low,
    share_high(own.success, size_of(own.success, of_sample.success, success_low, success_high), 1)
        AS success_high,
    own.worth_sharing AS worth_sharing,
    own.share AS share,
    share_low(own.share, size_of(own.share, of_sample.share, share_low, share_high), 1)
        AS share_low,
    share_high(own.share, size_of(own.share, of_sample.share, share_low, share_high), 1)
        AS share_high,
    own.confidence AS confidence,
    own.overconfidence AS overconfidence,
    end_of(
        own.overconfidence, of_sample.overconfidence, overconfidence_low, overconfidence_high,
        overconfidence_low
    ) AS overconfidence_low,
    end_of(
        own.overconfidence, of_sample.overconfidence, overconfidence_low, overconfidence_high,
        overconfidence_high
    ) AS overconfidence_high,
    own.tools AS tools,
    own.low_diversity_penalty AS low_diversity_penalty
FROM (
    SELECT
        keys AS key,
        count(*) AS traces,
        least(two_digits(approx_count_distinct(objective_hash)), count(*)) AS tasks,
        avg(score) AS mean,
        avg(novelty) AS novelty,
        count(*) FILTER (cache_filling) AS cache_filling,
        count(*) FILTER (success) / count(*) AS success,
        count(*) FILTER (meets_threshold) AS worth_sharing,
        worth_sharing / count(*) AS share,
        avg(confidence) AS confidence,
        avg(confidence - success::INTEGER) AS overconfidence,
        avg(n_tools) AS tools,
        count(*) FILTER (low_diversity_penalty) / count(*) AS low_diversity_penalty
    FROM query_table(traces)
    GROUP BY key
) AS own
LEFT JOIN kp.means_by(keys) AS of_sample ON own.key IS NOT DISTINCT FROM of_sample.key;
