CREATE MACRO composite(
    complexity, novelty, tool_diversity, outcome_confidence, wc, wn, wd, wo
) AS complexity * wc + novelty * wn + tool_diversity * wd + outcome_confidence * wo;

COMMENT ON MACRO composite IS 'The weighted sum of the four dimensions, before the overrides.';
