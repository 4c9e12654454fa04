-- Whether stored state updates that are later than the posted record may still have to be applied to it.
ALTER TABLE conversation_updates.conversations RENAME COLUMN is_behind TO has_unapplied_events;
ALTER INDEX conversation_updates.conversations_behind RENAME TO conversations_unapplied;
