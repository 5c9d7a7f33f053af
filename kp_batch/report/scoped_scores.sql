-- The scores as the page asks for them: each trace in the scope of its domain's label, and in that of all
-- domains. Given: traces, a view; name, of the new one; scopes.
CREATE OR REPLACE TEMP VIEW $name AS
SELECT trace.* REPLACE (scope AS task_domain)
FROM $traces AS trace
JOIN scopes USING (task_domain);

-- Likewise, with the beginning of its step of time, null outside of the scope's span. Given: steps_of_days.
CREATE OR REPLACE TEMP VIEW ${name}_in_time AS
SELECT
    trace.*,
    CASE WHEN is_by_hour THEN date_trunc('hour', make_timestamp(epoch_us(created_at))) ELSE start END
        AS start
FROM $name AS trace
JOIN steps_of_days AS of_day ON of_day.domain = task_domain AND of_day.day = day_of(created_at);
