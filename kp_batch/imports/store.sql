-- What an archive knows of its imports.

CREATE TABLE state (
    format TEXT NOT NULL,
    importer INTEGER NOT NULL, -- the version of how records become traces
    rules TEXT NOT NULL, -- JSON
    number INTEGER NOT NULL, -- of the last file that was read; another one after each import
    closed INTEGER NOT NULL -- folders that could not be read
);

-- The files of sources, as they were when they were read.
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    stamp TEXT, -- with those of its sidecars; null if it was only probed
    seen TEXT, -- its stamp when it was probed
    sniffed TEXT -- JSON, see Format.probe
);

CREATE TABLE blocks (id INTEGER PRIMARY KEY, records BLOB NOT NULL);

-- A unit of a source, with its records, and the trace that it is. A session is a unit that has
-- several traces, each of which has a row without records.
CREATE TABLE units (
    name TEXT PRIMARY KEY, -- the native id; of a session 'session ' and its name
    blocks TEXT NOT NULL, -- ids, in which its records are; JSON
    files TEXT NOT NULL, -- ids, from which these are; JSON
    bytes INTEGER NOT NULL, -- of these
    number INTEGER NOT NULL, -- the state's, after the last import that built it
    day TEXT, -- in which the trace is; null if in none
    state TEXT, -- 'waiting' for its root; 'skipped', as it is no agent's
    since TEXT, -- the time at which its last new record was read, for one with a state
    links TEXT -- of a session its traces, and of such a trace its sessions; JSON
) WITHOUT ROWID;

CREATE INDEX units_with_state ON units (state, since) WHERE state IS NOT NULL;

-- Where traces have to be taken out of days, until that is done.
CREATE TABLE leaving (day TEXT NOT NULL, unit TEXT NOT NULL, PRIMARY KEY (day, unit)) WITHOUT ROWID;

-- What is kept out for good; of a unit without a digest all.
CREATE TABLE forgotten (unit TEXT NOT NULL, digest BLOB);

CREATE INDEX forgotten_by_unit ON forgotten (unit);

-- The lines of the lists of refusals.
CREATE TABLE refusals (
    owner TEXT, -- the id of a trace, or a session; null where it is of a file alone
    file TEXT NOT NULL,
    waits INTEGER NOT NULL,
    text TEXT NOT NULL, -- JSON
    UNIQUE (text)
);
