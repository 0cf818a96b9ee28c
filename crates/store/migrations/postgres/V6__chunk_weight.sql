-- What a leased chunk weighs more than its deliveries because of the bytes it holds: whoever ends the lease gives back what
-- it took, and a process that takes a partition over counts what others claimed.
ALTER TABLE chunk ADD COLUMN IF NOT EXISTS weight int4 NOT NULL DEFAULT 0;
