-- Compares the mean of each period with that of the previous four, from the sums in `changed`: for all domains
-- together, and for each. Holm's method adjusts the p-values of domains over the domains of a period.
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
