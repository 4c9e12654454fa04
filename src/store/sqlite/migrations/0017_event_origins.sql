-- Where an event comes from, as UpdateOrigin; null for a posted one.
ALTER TABLE events ADD COLUMN origin INTEGER;
