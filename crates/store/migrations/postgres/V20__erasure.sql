-- Members of a batch that were erased (decision 0055): their recipients and contents are gone, those of the others are not.
ALTER TABLE batch ADD COLUMN IF NOT EXISTS erased integer NOT NULL DEFAULT 0;

-- Changes of the suppression list by recipient, for when one is erased.
CREATE INDEX IF NOT EXISTS suppression_event_of ON suppression_event (recipient);
