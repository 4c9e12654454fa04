-- Where an event comes from, as UpdateOrigin; null for a posted one.
ALTER TABLE conversation_updates.events ADD COLUMN origin bigint;
