-- A list, because COLUMNS reads a text as a regular expression: 'novelty' would match from_novelty.
CREATE MACRO names(columns) AS string_split(lower(trim(columns::VARCHAR, '[]')), ', ');

COMMENT ON MACRO names IS 'The names of columns as a list, from one text or several.';
