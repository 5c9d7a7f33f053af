-- Given: function (a name) and files (SQL for the rows of the table).
CREATE OR REPLACE MACRO $function() AS TABLE
SELECT
    source_file,
    status,
    size,
    mtime_ns,
    file_id,
    "rows",
    reasons,
    message,
    path_keys
FROM $files;

CREATE OR REPLACE VIEW files AS FROM $function();

COMMENT ON VIEW files IS 'A row is a file that was ever read, until it is pruned; status: read, unreadable, gone or excluded.';
