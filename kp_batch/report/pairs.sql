-- How agents or frameworks differ from the others on the same tasks. Given: unit, a column.
CREATE OR REPLACE TEMP TABLE ${unit}_pairs AS
FROM here.differences_from_others($unit);
