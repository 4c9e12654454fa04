-- The times between which the events of each block of 1,024 sequence numbers happened, so that a list of a range of time
-- begins at its first block. The range of a block may be too wide: it stays when events are removed.
CREATE TABLE event_times (
	block INTEGER PRIMARY KEY,
	first_at INTEGER NOT NULL,
	last_at INTEGER NOT NULL
) STRICT;
INSERT INTO event_times SELECT sequence >> 10, min(happened_at), max(happened_at) FROM events GROUP BY 1;
CREATE TRIGGER event_added AFTER INSERT ON events BEGIN
	INSERT INTO event_times VALUES (NEW.sequence >> 10, NEW.happened_at, NEW.happened_at)
	ON CONFLICT DO UPDATE SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
	WHERE excluded.first_at < first_at OR excluded.last_at > last_at;
END;
