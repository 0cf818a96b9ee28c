-- Shards of the streams that sources read (decision 0046): a row for each that the stream has, and one for each reader.
CREATE TABLE IF NOT EXISTS source_shard (
    source   text   NOT NULL,
    shard    text   NOT NULL,
    position text   NOT NULL,  -- how far it is read, in the words of its readers
    reader   bigint NOT NULL,  -- the number of the one that has it
    until    bigint NOT NULL,  -- no other reader takes it before then, ms since 1970
    PRIMARY KEY (source, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
