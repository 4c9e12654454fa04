-- `clock` is the time of retention, below which history is removed. Sequences up to `skipped_through` are never assigned.
ALTER TABLE store_state ADD COLUMN clock INTEGER;
ALTER TABLE logs ADD COLUMN skipped_through INTEGER NOT NULL DEFAULT 0;
