-- Reads the columns that the report needs, of every trace, as numbers. A text becomes its place in an enum.
SELECT
    -- 60 bits are compared faster than a text, and among ten million texts they hardly ever collide. The other
    -- four bits have room for the label of a domain, one of ten.
    hash(objective_hash) & ~15::UBIGINT AS task,
    enum_code(task_domain::report_domains)::INTEGER AS domain,
    coalesce(enum_code(agent_id::report_agents)::INTEGER, -1) AS agent,
    coalesce(enum_code(framework::report_frameworks)::INTEGER, -1) AS framework,
    day_of(created_at) - DATE '1970-01-01' AS day,
    extract('hour' FROM make_timestamp(epoch_us(created_at)))::UTINYINT AS hour,
    score,
    novelty,
    confidence,
    recorded_score AS recorded,
    n_tools::INTEGER AS tools,
    bin_of(score, 20)::UTINYINT AS score_bin,
    bin_of(confidence, 10)::UTINYINT AS confidence_bin,
    success,
    meets_threshold,
    cache_warming_up AS warming_up,
    low_diversity_penalty AS penalty,
    coalesce(max_similarity >= 0.95, false) AS near_repeats
FROM scores;
