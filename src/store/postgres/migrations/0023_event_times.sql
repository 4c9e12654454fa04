-- The times between which the events of each block of 1,024 sequence numbers happened, so that a list of a range of time
-- begins at its first block. The range of a block may be too wide: it stays when events are removed. A transaction that
-- inserts events holds the row of `positions`, so that no other one changes the same block.
CREATE TABLE conversation_updates.event_times (
	block bigint PRIMARY KEY,
	first_at bigint NOT NULL,
	last_at bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO conversation_updates.event_times
SELECT sequence >> 10, min(happened_at), max(happened_at) FROM conversation_updates.events GROUP BY 1;
CREATE FUNCTION conversation_updates.widen_event_times() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO conversation_updates.event_times AS t
		SELECT sequence >> 10, min(happened_at), max(happened_at) FROM after GROUP BY 1
		ON CONFLICT (block) DO UPDATE
		SET first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at)
		WHERE excluded.first_at < t.first_at OR excluded.last_at > t.last_at;
		RETURN NULL;
	END
$$;
CREATE TRIGGER events_added AFTER INSERT ON conversation_updates.events
	REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.widen_event_times();
