-- Creates enums of the domains, agents and frameworks, which turn these texts into numbers. Given: by_domain.
CREATE OR REPLACE TEMP TYPE report_domains AS ENUM (SELECT task_domain FROM by_domain ORDER BY ALL);

CREATE OR REPLACE TEMP TYPE report_agents AS ENUM (
    SELECT DISTINCT unnest(agents) FROM by_domain ORDER BY ALL
);

CREATE OR REPLACE TEMP TYPE report_frameworks AS ENUM (
    SELECT DISTINCT unnest(frameworks) FROM by_domain ORDER BY ALL
);
