-- Rows of the outbox may have labels (decision 0058). Those that are there have none, so they need not be looked through.
ALTER TABLE outbox
    ADD COLUMN external_id text,
    ADD COLUMN tags        json,
    ADD COLUMN metadata    json,
    ADD CONSTRAINT "external_id has 1 to 255 bytes" CHECK (octet_length(external_id) BETWEEN 1 AND 255) NOT VALID,
    ADD CONSTRAINT "external_id has no control characters" CHECK (external_id !~ '[\u0001-\u001f\u007f-\u009f]') NOT VALID,
    ADD CONSTRAINT "tags are an array of at most 8" CHECK (
        CASE json_typeof(tags) WHEN 'array' THEN json_array_length(tags) <= 8 ELSE tags IS NULL END) NOT VALID,
    ADD CONSTRAINT "tags have at most 4096 bytes" CHECK (octet_length(tags::text) <= 4096) NOT VALID,
    ADD CONSTRAINT "metadata are an object" CHECK (json_typeof(metadata) = 'object') NOT VALID,
    ADD CONSTRAINT "metadata have at most 1024 bytes" CHECK (octet_length(metadata::text) <= 1024) NOT VALID;

ALTER TABLE outbox_rejected
    ADD COLUMN external_id text,
    ADD COLUMN tags        json,
    ADD COLUMN metadata    json;
