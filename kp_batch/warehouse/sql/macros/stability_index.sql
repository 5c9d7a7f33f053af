CREATE MACRO bin_shares(bins) AS list_transform(
    bins, lambda bin_count: greatest(bin_count / list_sum(bins), 0.0001)
);

COMMENT ON MACRO bin_shares IS 'The share of each bin in a list of counts, at least 0.0001.';

-- With fewer traces it mostly shows how few they are: chance adds 9 (1/a + 1/b) over ten bins.
CREATE MACRO stability_index(bins_a, bins_b) AS CASE
    WHEN least(list_sum(bins_a), list_sum(bins_b)) >= 200
        THEN list_sum(
            list_transform(
                list_zip(kp.bin_shares(bins_a), kp.bin_shares(bins_b)),
                lambda share: (share[2] - share[1]) * ln(share[2] / share[1])
            )
        )
END;

COMMENT ON MACRO stability_index IS 'The population stability index of two lists of counts: the sum of (q - p) * ln(q / p) over the shares p and q of the bins; null if either has fewer than 200.';
