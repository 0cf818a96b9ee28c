-- Finds the lanes of a channel of a tenant without a look at those of others, to cancel what waits there. By an expression, so that
-- no look-up by tenant and channel is mistaken for one of these.
CREATE INDEX tenant_lane_by_channel ON tenant_lane (tenant || '/' || channel, id);
