-- By how much the means of periods differ from those of the previous four, by the sums in `changed`: for all
-- domains, and for each. The p-values of domains are by Holm over the domains of a period.
CREATE OR REPLACE TEMP TABLE changes AS
WITH sums AS (SELECT *, (task_domain IS NULL, number) AS asked_together FROM changed)
SELECT
    task_domain,
    begins,
    traces,
    tasks,
    mean,
    traces_before,
    tasks_before,
    mean_before,
    change,
    low,
    high,
    adjusted_p_value AS p_value
FROM intervals_of_changes('sums');
