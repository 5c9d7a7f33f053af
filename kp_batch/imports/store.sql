-- The records of an archive's imports, and what was made of them.

CREATE TABLE state (
    format TEXT NOT NULL,
    importer INTEGER NOT NULL, -- the version of the code that makes traces of records
    rules TEXT NOT NULL, -- JSON
    number INTEGER NOT NULL, -- of the last file that was read; each import adds one more
    unreadable_folders INTEGER NOT NULL
);

-- The files of the sources, as they were when they were read.
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    stamp TEXT, -- its stamp with those of its sidecars; null if it was only probed
    seen TEXT, -- its stamp when it was probed
    probed TEXT -- JSON, see Format.probe
);

CREATE TABLE blocks (id INTEGER PRIMARY KEY, records BLOB NOT NULL);

-- The units of the sources: each has records and becomes a trace. A session is a unit that becomes
-- several traces; each of these has a row of its own, without records.
CREATE TABLE units (
    name TEXT PRIMARY KEY, -- the native id; for a session 'session ' and its name
    blocks TEXT NOT NULL, -- the ids of the blocks with its records; JSON
    files TEXT NOT NULL, -- the ids of the files of its records; JSON
    bytes INTEGER NOT NULL, -- the size of its records
    number INTEGER NOT NULL, -- the number of the last import that built it
    day TEXT, -- the day with its trace; null: none
    state TEXT, -- 'waiting' for its root, or 'skipped' because no agent made it
    since TEXT, -- when its last new record was read; null without a state
    links TEXT -- for a session its traces, for such a trace its sessions; JSON
) WITHOUT ROWID;

CREATE INDEX units_with_state ON units (state, since) WHERE state IS NOT NULL;

-- The units to remove from days; a row is deleted when that is done.
CREATE TABLE leaving (day TEXT NOT NULL, unit TEXT NOT NULL, PRIMARY KEY (day, unit)) WITHOUT ROWID;

-- The forgotten records; without a digest, all records of the unit.
CREATE TABLE forgotten (unit TEXT NOT NULL, digest BLOB);

CREATE INDEX forgotten_by_unit ON forgotten (unit);

-- The lines of the lists of refused records.
CREATE TABLE refusals (
    owner TEXT, -- the id of a trace or a session; null if a whole file is refused
    file TEXT NOT NULL,
    waits INTEGER NOT NULL,
    text TEXT NOT NULL, -- JSON
    UNIQUE (text)
);
