-- A fit whose relative error is below a millionth for 4 degrees of freedom or more. Five tasks have 4, and
-- rounding may give slightly less.
CREATE MACRO student_t(df) AS CASE WHEN df > 4 - 1e-9 THEN 1.959963984540054
    + (2.37228 + (2.82183 + (2.56858 + (1.4835 + 1.14396 / df) / df) / df) / df) / df
END;

COMMENT ON MACRO student_t IS 'The quantile 0.975 of Student''s t, the factor of the standard error in a 95% interval; null below 4 degrees of freedom.';

-- The analysis of variance of a share: the mean squares between tasks and within tasks.
CREATE MACRO intraclass_correlation(between_tasks, share, traces, tasks, squares) AS CASE
    WHEN share > 0 AND share < 1 AND tasks < traces THEN greatest(0, least(1,
        (
            (between_tasks - traces * share * share) / (tasks - 1)
            - (traces * share - between_tasks) / (traces - tasks)
        ) / (
            (between_tasks - traces * share * share) / (tasks - 1)
            + ((traces - squares / traces) / (tasks - 1) - 1)
            * (traces * share - between_tasks) / (traces - tasks)
        )
    ))
    ELSE 1
END;

COMMENT ON MACRO intraclass_correlation IS 'How alike attempts at one task are in what a share counts, 0 to 1. between_tasks: the sum of hits * hits / traces over the tasks; squares: that of traces * traces.';

-- Four imaginary tasks pull the correlation towards 1, because few tasks say little about it.
CREATE MACRO effective_traces(between_tasks, share, traces, tasks, squares) AS traces * traces / (
    traces + (squares - traces) * (
        4 + (tasks - 4) * kp.intraclass_correlation(between_tasks, share, traces, tasks, squares)
    ) / tasks
);

COMMENT ON MACRO effective_traces IS 'How many independent traces would give a share the same precision: from the effective tasks, if attempts at one task are alike, to all traces. Parameters as in intraclass_correlation.';

CREATE MACRO share_low(share, n, t) AS CASE WHEN t IS NULL THEN NULL WHEN share = 0 THEN 0 ELSE greatest(
    0, (share + t * t / (2 * n) - t * sqrt(share * (1 - share) / n + t * t / (4 * n * n))) / (1 + t * t / n)
) END;

COMMENT ON MACRO share_low IS 'The lower end of Wilson''s interval of a share of n.';

CREATE MACRO share_high(share, n, t) AS CASE WHEN t IS NULL THEN NULL WHEN share = 1 THEN 1 ELSE least(
    1, (share + t * t / (2 * n) + t * sqrt(share * (1 - share) / n + t * t / (4 * n * n))) / (1 + t * t / n)
) END;

COMMENT ON MACRO share_high IS 'The upper end of Wilson''s interval of a share of n.';

-- If both sides are the same, rounding may make this negative.
CREATE MACRO of_both_sides(a, b, alike) AS sqrt(abs(a * a - 2 * alike * a * b + b * b));

COMMENT ON MACRO of_both_sides IS 'The distance from a difference to an end of its interval, from the distances a and b of both sides, whose errors correlate by alike.';

CREATE MACRO margin_of_shares(share, other_share, n, t, alike) AS kp.of_both_sides(
    share - kp.share_low(share, n, t), kp.share_high(other_share, n, t) - other_share, alike
);

COMMENT ON MACRO margin_of_shares IS 'The distance from share - other_share, on the same n tasks, down to the end of its interval; with both exchanged, up.';

-- If few tasks score far from the others, a side without them seems to vary too little. The variance is
-- at least that of two sides that vary alike.
CREATE MACRO error_of_change(
    variance_of_change, variance, variance_before, effective, effective_before
) AS sqrt(
    variance_of_change
    + greatest(
        0,
        (
            (effective - 1) * effective * variance
            + (effective_before - 1) * effective_before * variance_before
        ) / (effective + effective_before - 2) * (1 / effective + 1 / effective_before)
        - variance - variance_before
    )
);

COMMENT ON MACRO error_of_change IS 'The standard error of a change of a mean, from the jackknife''s variances of the change and of both means, and the effective tasks.';

-- If nothing varies except by rounding, the variance of a change is unknown.
CREATE MACRO degrees_of_change(
    change, variance, variance_before, effective, effective_before, effective_of_both
) AS CASE
    WHEN effective_before IS NULL OR least(effective, effective_before) < 5 THEN NULL
    WHEN variance + variance_before < 1e-24
        THEN CASE WHEN change = 0 THEN least(effective, effective_before) - 1 END
    ELSE least(
        effective_of_both - 1,
        pow(variance + variance_before, 2) / (
            pow(variance, 2) / (effective - 1)
            + pow(variance_before, 2) / (effective_before - 1)
        )
    )
END;

COMMENT ON MACRO degrees_of_change IS 'The degrees of freedom of a change of a mean: Welch''s, but at most the tasks of both sides. Null below 5 effective tasks on a side, or if nothing varies but the means differ.';

-- Hill's algorithm 395, with y = (df - 0.5) * ln(1 + t * t / df).
CREATE MACRO normal_deviate(y, df) AS sqrt(y) * (
    1 + (
        y + 3 + (((-0.4 * y - 3.3) * y - 24) * y - 85.5)
        / (0.8 * y * y + 100 + 48 * (df - 0.5) * (df - 0.5))
    ) / (48 * (df - 0.5) * (df - 0.5))
);

COMMENT ON MACRO normal_deviate IS 'The standard normal deviate as unlikely as t of Student''s distribution with df degrees of freedom, 4 or more; y is (df - 0.5) * ln(1 + t * t / df).';

-- Abramowitz and Stegun, 7.1.26.
CREATE MACRO two_sided(deviate) AS exp(-deviate * deviate / 2) / (1 + 0.23164189 * deviate) * (
    0.254829592 + (
        -0.284496736 + (
            1.421413741 + (-1.453152027 + 1.061405429 / (1 + 0.23164189 * deviate))
            / (1 + 0.23164189 * deviate)
        ) / (1 + 0.23164189 * deviate)
    ) / (1 + 0.23164189 * deviate)
);

COMMENT ON MACRO two_sided IS 'The probability that a standard normal value is further from 0 than this deviate.';

CREATE MACRO number_of_period(period, begins) AS
    date_diff(period, DATE '2000-01-03', begins);

COMMENT ON MACRO number_of_period IS 'The number of the period that begins on a day; each next period adds one.';
