-- Rows of the outbox may name a template, give variables, and say what stands in for them. Those that are there say
-- nothing of it, so they need not be looked through.
ALTER TABLE outbox
    ALTER COLUMN content DROP NOT NULL,
    ADD COLUMN template  text,
    ADD COLUMN variables json,
    ADD COLUMN fallback  json,
    ADD CONSTRAINT "content or template is given, and one of them only" CHECK (num_nonnulls(content, template) = 1) NOT VALID,
    ADD CONSTRAINT "template is 1 to 64 of a-z, 0-9, - and _" CHECK (template ~ '^[a-z0-9][a-z0-9_-]{0,63}$') NOT VALID,
    ADD CONSTRAINT "options are part of the template" CHECK (template IS NULL OR options IS NULL) NOT VALID,
    ADD CONSTRAINT "variables are an object" CHECK (json_typeof(variables) = 'object') NOT VALID,
    ADD CONSTRAINT "variables have at most 65536 bytes" CHECK (octet_length(variables::text) <= 65536) NOT VALID,
    ADD CONSTRAINT "fallback is an array of at most 3" CHECK (
        CASE json_typeof(fallback) WHEN 'array' THEN json_array_length(fallback) <= 3 ELSE fallback IS NULL END) NOT VALID,
    ADD CONSTRAINT "fallback has at most 262144 bytes" CHECK (octet_length(fallback::text) <= 262144) NOT VALID;

ALTER TABLE outbox_rejected
    ALTER COLUMN content DROP NOT NULL,
    ADD COLUMN template  text,
    ADD COLUMN variables json,
    ADD COLUMN fallback  json;
