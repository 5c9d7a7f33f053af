-- The types of the texts of domains, agents and frameworks, which make numbers of these. By a table, as it takes
-- ten times as long to make a type of the scores themselves. Given: by_domain.
CREATE OR REPLACE TEMP TABLE report_units AS SELECT DISTINCT agent_id, framework FROM scores;

CREATE OR REPLACE TEMP TYPE report_domains AS ENUM (SELECT task_domain FROM by_domain ORDER BY ALL);

CREATE OR REPLACE TEMP TYPE report_agents AS ENUM (
    SELECT DISTINCT agent_id FROM report_units WHERE agent_id IS NOT NULL ORDER BY ALL
);

CREATE OR REPLACE TEMP TYPE report_frameworks AS ENUM (
    SELECT DISTINCT framework FROM report_units WHERE framework IS NOT NULL ORDER BY ALL
);
