-- Whether stored state updates that are later than the posted record may still have to be applied to it.
ALTER TABLE conversations RENAME COLUMN is_behind TO has_unapplied_events;
DROP INDEX conversations_behind;
CREATE INDEX conversations_unapplied ON conversations (id) WHERE has_unapplied_events = 1;
