-- Members of a batch that were erased (decision 0055): their recipients and contents are gone, those of the others are not.
ALTER TABLE batch ADD COLUMN erased INTEGER NOT NULL DEFAULT 0;

-- Changes of the suppression list by recipient, for when one is erased.
CREATE INDEX suppression_event_of ON suppression_event (recipient);
