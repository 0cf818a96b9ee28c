-- API keys that calls made (decision 0067). The keys themselves are stored nowhere.
CREATE TABLE IF NOT EXISTS api_key (
    name         text   COLLATE "C" NOT NULL PRIMARY KEY,
    tenant       text   COLLATE "C" NOT NULL,
    sha256       bytea  NOT NULL,
    former       bytea,             -- SHA-256 of the key before the rotation
    former_until bigint,            -- and the last instant at which it is good
    grants       text   NOT NULL,   -- in the words of the API
    made_at      bigint NOT NULL
);
-- Rises with every change of the keys. So does the version of the pauses, by which each worker says what it goes by.
INSERT INTO meta (key, value) VALUES ('keys', 1) ON CONFLICT DO NOTHING;
