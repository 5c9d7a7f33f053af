-- What is known of the traces that are alike in these columns: as the question tells it.
CREATE OR REPLACE TEMP MACRO means(keys, traces := 'scoped') AS TABLE
SELECT * EXCLUDE (median, single_thought, recovery_bonus) FROM kp.means_by(keys);
