-- The distribution of the scores in each scope, the intervals of its means, and its novelty.
SELECT
    domain,
    means.* EXCLUDE ("by", domain, start, bin, unit, effective_tasks),
    spread.* EXCLUDE (domain)
FROM spread
JOIN means USING (domain)
WHERE "by" = 'domain'
ORDER BY
    domain <> getvariable('all_domains'),
    domain IS NOT DISTINCT FROM getvariable('others'),
    traces DESC,
    domain;
