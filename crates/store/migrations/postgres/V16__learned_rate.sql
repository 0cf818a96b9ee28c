-- Rates that were learned from refusals, and the turns that processes have booked to send by them (decision 0045): a row for each
-- destination, while it counts. Times are microseconds since the Unix epoch.
CREATE TABLE IF NOT EXISTS learned_rate (
    key          text             NOT NULL PRIMARY KEY,  -- of the destination's quota
    found        double precision NOT NULL,  -- messages a second that were let through before the last refusal
    climbed      bigint           NOT NULL,  -- microseconds for which the rate has held something back since
    generation   bigint           NOT NULL,  -- of the last refusal
    began_at     bigint           NOT NULL,
    refused_at   bigint           NOT NULL,  -- when the rate was set back last
    booked_until bigint           NOT NULL,  -- end of the last turn
    paused_until bigint           NOT NULL,  -- nothing is sent until then
    rests_until  bigint           NOT NULL,  -- no rate is learned until then
    until        bigint           NOT NULL   -- it counts until then
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX IF NOT EXISTS learned_rate_until ON learned_rate (until);
