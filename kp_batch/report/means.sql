-- Computes the means and shares of groups of traces, with the catalog's intervals. Given: sums, of each group.
CREATE OR REPLACE TEMP TABLE means AS
WITH measures AS (
    SELECT
        {'by': "by", 'domain': domain, 'start': start, 'bin': bin, 'unit': unit} AS key,
        traces,
        tasks,
        squares,
        warming_up,
        tools,
        penalty,
        unnest([
            {'measure': 'score', 'total': score, 'shift_squares': score_squares, 'between_tasks': NULL},
            {'measure': 'novelty', 'total': novelty, 'shift_squares': novelty_squares, 'between_tasks': NULL},
            {
                'measure': 'success',
                'total': success,
                'shift_squares': success_squares,
                'between_tasks': success_between
            },
            {
                'measure': 'share_at_threshold',
                'total': meets_threshold,
                'shift_squares': NULL,
                'between_tasks': meets_threshold_between
            },
            {
                'measure': 'confidence',
                'total': confidence,
                'shift_squares': confidence_squares,
                'between_tasks': NULL
            },
            {
                'measure': 'overconfidence',
                'total': confidence - success,
                'shift_squares': confidence_squares + success_squares - 2 * products,
                'between_tasks': NULL
            }
        ], max_depth := 2)
    FROM sums
),
means AS (
    PIVOT (FROM intervals_of_means('measures'))
    ON measure IN ('score', 'novelty', 'success', 'share_at_threshold', 'confidence', 'overconfidence')
    USING first(total) AS total, first(mean) AS mean, first(low) AS low, first(high) AS high
    GROUP BY key, traces, tasks, effective_tasks, warming_up, tools, penalty
)
SELECT
    key.*,
    traces,
    tasks,
    effective_tasks,
    score_mean AS mean,
    score_low AS low,
    score_high AS high,
    novelty_mean AS novelty,
    novelty_low,
    novelty_high,
    warming_up::BIGINT AS cache_warming_up,
    success_mean AS success,
    success_low,
    success_high,
    share_at_threshold_total::BIGINT AS at_threshold,
    share_at_threshold_mean AS share,
    share_at_threshold_low AS share_low,
    share_at_threshold_high AS share_high,
    confidence_mean AS confidence,
    overconfidence_mean AS overconfidence,
    overconfidence_low,
    overconfidence_high,
    tools / traces AS tools,
    penalty / traces AS low_diversity_penalty
FROM means;
