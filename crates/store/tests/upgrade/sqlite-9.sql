PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE refinery_schema_history(
             version int4 PRIMARY KEY,
             name VARCHAR(255),
             applied_on VARCHAR(255),
             checksum VARCHAR(255));
INSERT INTO refinery_schema_history VALUES(1,'batches','2026-11-27T22:02:06.97680941Z','2187244338442753856');
INSERT INTO refinery_schema_history VALUES(2,'suspects','2026-11-27T22:02:06.976855168Z','3692002544272780996');
INSERT INTO refinery_schema_history VALUES(3,'due_spans','2026-11-27T22:02:06.976857731Z','11246793153607709522');
INSERT INTO refinery_schema_history VALUES(4,'unreleased','2026-11-27T22:02:06.976860315Z','17125714452425235888');
INSERT INTO refinery_schema_history VALUES(5,'tenant_lanes','2026-11-27T22:02:06.976862839Z','5755592979499768505');
INSERT INTO refinery_schema_history VALUES(6,'pauses','2026-11-27T22:02:06.976865523Z','16680831255244679333');
INSERT INTO refinery_schema_history VALUES(7,'resuming','2026-11-27T22:02:06.976867646Z','1277206110456045957');
INSERT INTO refinery_schema_history VALUES(8,'lanes_of_tenants','2026-11-27T22:02:06.976869529Z','3017333592158298154');
INSERT INTO refinery_schema_history VALUES(9,'source_shard','2026-11-27T22:02:06.976871452Z','16859816127460665097');
CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('realm',2623);
CREATE TABLE broadcast (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT    NOT NULL,
    channel     TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    guarantee   INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    expires_at  INTEGER,
    sealed_at   INTEGER,                     -- NULL while it is open
    key         TEXT,
    fingerprint BLOB,
    options     BLOB    NOT NULL,
    payload     BLOB    NOT NULL
) STRICT;
INSERT INTO broadcast VALUES(1,'default','dry',2,0,1795816927000,NULL,1795816927513,'campaign',X'1e4e2ffd4355b1a2e2661d4c65eeb2c36f86e22d60b438521901543729dc8292',X'',X'7b22616c6c223a317d');
INSERT INTO broadcast VALUES(2,'default','dry',1,0,1795817400000,NULL,1795816927529,NULL,NULL,X'',X'7b22616c6c223a327d');
CREATE TABLE batch (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    lane        INTEGER NOT NULL,
    guarantee   INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    expires_at  INTEGER,
    broadcast   INTEGER,
    count       INTEGER NOT NULL,
    tenant      TEXT    NOT NULL,
    options     BLOB,                        -- content of all members, NULL when it is elsewhere
    payload     BLOB,
    items       BLOB    NOT NULL
) STRICT;
INSERT INTO batch VALUES(1,1,0,1795816927141,1795816927000,NULL,NULL,1,'default',X'',X'7b226e223a317d',X'01000673656e742d31');
INSERT INTO batch VALUES(2,1,0,1795816927157,1795816927000,NULL,NULL,1,'default',X'',X'7b226e223a327d',X'01000673656e742d32');
INSERT INTO batch VALUES(3,1,0,1795816927174,1795816927000,NULL,NULL,1,'default',X'',X'7b226e223a337d',X'01000673656e742d33');
INSERT INTO batch VALUES(4,1,0,1795816927189,1795816927000,NULL,NULL,1,'default',X'',X'7b226e223a347d',X'0100056b65796564');
INSERT INTO batch VALUES(5,2,0,1795816927204,1795817400000,NULL,NULL,1,'default',X'',X'7b226e223a317d',X'0100076c617465722d31');
INSERT INTO batch VALUES(6,2,0,1795816927217,1795817400000,NULL,NULL,1,'default',X'',X'7b226e223a327d',X'0100076c617465722d32');
INSERT INTO batch VALUES(7,2,0,1795816927231,1795817400000,NULL,NULL,1,'default',X'',X'7b226e223a337d',X'0100076c617465722d33');
INSERT INTO batch VALUES(8,1,1,1795816927245,1795817400000,NULL,NULL,1,'default',X'',X'7b226e223a317d',X'0100046f6e6365');
INSERT INTO batch VALUES(9,1,0,1795816927258,1795817400000,NULL,NULL,1,'default',NULL,NULL,X'010302077b226e223a317d00077b226e223a327d000d776974682d66616c6c6261636b00170003647279076472792d72756e0866616c6c6261636b01');
INSERT INTO batch VALUES(10,3,0,1795816927273,1795816927000,NULL,NULL,1,'default',X'',X'7b226e223a357d',X'010017687474703a2f2f3132372e302e302e313a392f686f6f6b');
INSERT INTO batch VALUES(11,1,0,1795816927286,1795817400000,1811923200000,NULL,1,'default',X'',X'7b226e223a367d',X'01000765787069726573');
INSERT INTO batch VALUES(12,1,0,1795816927303,1795817400000,NULL,NULL,1,'default',X'',X'7b7d',X'01000963616e63656c6c6564');
INSERT INTO batch VALUES(13,1,0,1795816927499,1795816927000,NULL,NULL,1,'default',X'',X'7b7d',X'01000a6c6566742d616c6f6e65');
INSERT INTO batch VALUES(14,4,0,1795816927512,1795816927000,NULL,1,30,'default',NULL,NULL,X'010003622d3103622d3203622d3303622d3403622d3503622d3603622d3703622d3803622d3904622d313004622d313104622d313204622d313304622d313404622d313504622d313604622d313704622d313804622d313904622d323004622d323104622d323204622d323304622d323404622d323504622d323604622d323704622d323804622d323904622d3330');
INSERT INTO batch VALUES(15,1,0,1795816927529,1795817400000,NULL,2,20,'default',NULL,NULL,X'010003632d3103632d3203632d3303632d3403632d3503632d3603632d3703632d3803632d3904632d313004632d313104632d313204632d313304632d313404632d313504632d313604632d313704632d313804632d313904632d3230');
CREATE TABLE chunk (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    batch         INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    due_at        INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    lease_until   INTEGER,
    begun_through INTEGER,
    count         INTEGER NOT NULL,
    members       BLOB                       -- NULL: all of the batch
, span INTEGER GENERATED ALWAYS AS (due_at >> 14) VIRTUAL) STRICT;
INSERT INTO chunk VALUES(5,5,2,1795817400000,1,0,0,NULL,NULL,1,NULL);
INSERT INTO chunk VALUES(6,6,2,1795817400000,1,0,0,NULL,NULL,1,NULL);
INSERT INTO chunk VALUES(7,7,2,1795817400000,1,0,0,NULL,NULL,1,NULL);
INSERT INTO chunk VALUES(8,8,1,1795817400000,1,0,0,NULL,NULL,1,NULL);
INSERT INTO chunk VALUES(9,9,1,1795817400000,1,0,0,NULL,NULL,1,NULL);
INSERT INTO chunk VALUES(11,11,1,1795817400000,1,0,0,NULL,NULL,1,NULL);
INSERT INTO chunk VALUES(16,15,1,1795817400000,1,0,0,NULL,NULL,20,NULL);
CREATE TABLE log (
    id      INTEGER PRIMARY KEY,
    batch   INTEGER NOT NULL,
    entries BLOB    NOT NULL
) STRICT;
INSERT INTO log VALUES(1,1,X'01aadf9ef8a1340103c80100010000');
INSERT INTO log VALUES(2,2,X'01b9df9ef8a1340103c80100010000');
INSERT INTO log VALUES(3,3,X'01c8df9ef8a1340103c80100010000');
INSERT INTO log VALUES(4,4,X'01d9df9ef8a1340103c80100010000');
INSERT INTO log VALUES(5,10,X'01ace09ef8a1340109004763616e6e6f7420636f6e6e65637420746f20687474703a2f2f3132372e302e302e313a393a20436f6e6e656374696f6e207265667573656420286f73206572726f722031313129010000');
INSERT INTO log VALUES(6,12,X'01d5e19ef8a13400060000010000');
INSERT INTO log VALUES(7,13,X'018de29ef8a13400070034737570707265737365643a2061736b65642075732c2073696e636520323032362d31312d32375432323a30323a30372e3435385a010000');
INSERT INTO log VALUES(8,14,X'019de29ef8a1340103c8010001000f');
INSERT INTO log VALUES(9,14,X'01a1e29ef8a1340103c8010001100d');
CREATE TABLE idempotency (
    tenant       TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    notification BLOB,
    broadcast    INTEGER,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
INSERT INTO idempotency VALUES('default','campaign',X'1e4e2ffd4355b1a2e2661d4c65eeb2c36f86e22d60b438521901543729dc8292',NULL,1);
INSERT INTO idempotency VALUES('default','order 4',X'59c0bc328e151a4f43775ad12c713cfd220d364eb4af4fc81f5a1c460847a7a0',X'01a21f07afd58a3f8000000000040000',NULL);
CREATE TABLE suppression (
    channel   TEXT    NOT NULL,
    recipient TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    status    INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    PRIMARY KEY (channel, recipient)
) STRICT, WITHOUT ROWID;
INSERT INTO suppression VALUES('dry','left-alone','asked us',0,1795816927458);
CREATE TABLE suppression_lift (
    channel   TEXT    NOT NULL,
    recipient TEXT    NOT NULL,
    lifted_at INTEGER NOT NULL,
    PRIMARY KEY (channel, recipient)
) STRICT, WITHOUT ROWID;
INSERT INTO suppression_lift VALUES('dry','lifted',1795816927472);
CREATE TABLE suppression_event (
    id        INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    channel   TEXT    NOT NULL,
    recipient TEXT    NOT NULL,
    reason    TEXT,
    status    INTEGER,
    since     INTEGER
) STRICT;
INSERT INTO suppression_event VALUES(1,1795816927458,'dry','left-alone','asked us',0,1795816927458);
INSERT INTO suppression_event VALUES(2,1795816927458,'dry','lifted','asked us',0,1795816927458);
INSERT INTO suppression_event VALUES(3,1795816927472,'dry','lifted',NULL,NULL,NULL);
CREATE TABLE feed (
    name  TEXT    NOT NULL PRIMARY KEY,
    event INTEGER NOT NULL,
    until INTEGER,
    tries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE totals (state INTEGER PRIMARY KEY, count INTEGER NOT NULL) STRICT;
INSERT INTO totals VALUES(0,26);
INSERT INTO totals VALUES(3,34);
INSERT INTO totals VALUES(6,1);
INSERT INTO totals VALUES(7,1);
INSERT INTO totals VALUES(9,1);
CREATE TABLE unreleased (
    broadcast    INTEGER PRIMARY KEY,
    recipients   INTEGER NOT NULL DEFAULT 0, -- all it has
    waiting      INTEGER NOT NULL DEFAULT 0, -- of them, once it is sealed, those that have no chunk and no line in the log
    passed       INTEGER,                    -- batches up to this one have theirs; NULL while it is open
    withdrawn_at INTEGER                     -- since when those that wait are cancelled
) STRICT;
CREATE TABLE tenant_lane (
    id          INTEGER PRIMARY KEY,
    channel     TEXT    NOT NULL,
    destination TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    tenant      TEXT    NOT NULL,
    UNIQUE (channel, destination, priority, tenant)
) STRICT;
INSERT INTO tenant_lane VALUES(1,'dry','dry-run',1,'default');
INSERT INTO tenant_lane VALUES(2,'dry','dry-run',0,'default');
INSERT INTO tenant_lane VALUES(3,'gone','http://127.0.0.1:9',1,'default');
INSERT INTO tenant_lane VALUES(4,'dry','dry-run',2,'default');
CREATE TABLE pause (
    tenant TEXT    NOT NULL,
    scope  TEXT    NOT NULL, -- as `notification::PauseScope` writes it
    since  INTEGER NOT NULL,
    PRIMARY KEY (scope, tenant)
) STRICT, WITHOUT ROWID;
INSERT INTO pause VALUES('default','broadcast/bc_2',1795816930544);
CREATE TABLE resuming (
    broadcast INTEGER PRIMARY KEY,
    passed    INTEGER NOT NULL -- what batches up to this one have is due again
) STRICT;
CREATE TABLE source_shard (
    source   TEXT    NOT NULL,
    shard    TEXT    NOT NULL,
    position TEXT    NOT NULL,  -- how far it is read, in the words of its readers
    reader   INTEGER NOT NULL,  -- the number of the one that has it
    until    INTEGER NOT NULL,  -- no other reader takes it before then, ms since 1970
    PRIMARY KEY (source, shard)
) STRICT, WITHOUT ROWID;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('batch',15);
INSERT INTO sqlite_sequence VALUES('chunk',16);
INSERT INTO sqlite_sequence VALUES('broadcast',2);
CREATE INDEX broadcast_open ON broadcast (id) WHERE sealed_at IS NULL;
CREATE INDEX batch_of_broadcast ON batch (broadcast) WHERE broadcast IS NOT NULL;
CREATE INDEX chunk_ready ON chunk (lane, due_at) WHERE lease_until IS NULL;
CREATE INDEX chunk_leased ON chunk (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX chunk_of_batch ON chunk (batch);
CREATE INDEX log_of_batch ON log (batch);
CREATE INDEX chunk_suspect ON chunk (crashes) WHERE crashes > 3;
CREATE INDEX chunk_due ON chunk (span, lane, due_at) WHERE lease_until IS NULL;
CREATE INDEX tenant_lane_by_channel ON tenant_lane (tenant || '/' || channel, id);
COMMIT;
