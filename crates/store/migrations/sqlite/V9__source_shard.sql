-- Shards of the streams that sources read: a row for each that the stream has, and one for each reader.
CREATE TABLE source_shard (
    source   TEXT    NOT NULL,
    shard    TEXT    NOT NULL,
    position TEXT    NOT NULL,  -- how far it is read, in the words of its readers
    reader   INTEGER NOT NULL,  -- the number of the one that has it
    until    INTEGER NOT NULL,  -- no other reader takes it before then, ms since 1970
    PRIMARY KEY (source, shard)
) STRICT, WITHOUT ROWID;
