-- How agents or frameworks differ from the others on the same tasks. Given: unit, a column.
CREATE OR REPLACE TEMP TABLE ${unit}_pairs AS
FROM kp.differences_from_others($unit);
