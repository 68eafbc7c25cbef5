-- One row: the last revision, and the one up to which history is forgotten.
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    revision INTEGER NOT NULL,
    compacted INTEGER NOT NULL
) STRICT;
INSERT INTO state VALUES (1, 1, 0);

-- Numbers are never used again. The end is in milliseconds of the boot's clock.
CREATE TABLE lease (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_to_live_ms INTEGER NOT NULL,
    boot TEXT NOT NULL,
    ends_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX lease_end ON lease (ends_ms);

-- What each key has (current = 1), and what it had, as long as a watch may ask for it. No value: it was removed.
CREATE TABLE version (
    revision INTEGER NOT NULL,
    key TEXT NOT NULL,
    value BLOB,
    lease INTEGER,
    current INTEGER NOT NULL,
    UNIQUE (revision, key)
) STRICT;
CREATE UNIQUE INDEX version_current ON version (key) WHERE current = 1;
CREATE INDEX version_past ON version (revision) WHERE current = 0;
CREATE INDEX version_leased ON version (lease) WHERE current = 1 AND lease IS NOT NULL;
