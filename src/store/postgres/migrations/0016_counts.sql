-- Numbers of conversations that have the same values of all these columns, and numbers of tags. Empty: no owner, no
-- sender. The triggers below keep them; a row whose number becomes zero is removed.
CREATE TABLE conversation_updates.conversation_counts (
	owner text COLLATE "C" NOT NULL,
	status bigint NOT NULL,
	agent_kind text COLLATE "C" NOT NULL,
	model text COLLATE "C" NOT NULL,
	sender text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	PRIMARY KEY (owner, status, agent_kind, model, sender)
) WITH (fillfactor = 50);
CREATE TABLE conversation_updates.tag_key_counts (
	owner text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	PRIMARY KEY (key, owner)
) WITH (fillfactor = 50);
CREATE TABLE conversation_updates.tag_value_counts (
	owner text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	value text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	PRIMARY KEY (key, value, owner)
) WITH (fillfactor = 50);

INSERT INTO conversation_updates.conversation_counts
SELECT coalesce(owner, ''), status, agent_kind, model, coalesce(sender, ''), count(*)
FROM conversation_updates.conversations GROUP BY 1, 2, 3, 4, 5;
INSERT INTO conversation_updates.tag_key_counts
SELECT coalesce(c.owner, ''), t.key, count(*)
FROM conversation_updates.tags t JOIN conversation_updates.conversations c USING (conversation_id) GROUP BY 1, 2;
INSERT INTO conversation_updates.tag_value_counts
SELECT coalesce(c.owner, ''), t.key, t.value, count(*)
FROM conversation_updates.tags t JOIN conversation_updates.conversations c USING (conversation_id) GROUP BY 1, 2, 3;

-- Add to the counts. The row of `positions` is locked first: a transaction that appends holds it then anyway, and two
-- transactions that change the same counts cannot wait for each other.
CREATE FUNCTION conversation_updates.add_conversation_counts(
	changes conversation_updates.conversation_counts[]
) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM 1 FROM conversation_updates.positions FOR UPDATE;
		MERGE INTO conversation_updates.conversation_counts c
		USING (SELECT * FROM unnest(changes)) d ON c.owner = d.owner AND c.status = d.status
			AND c.agent_kind = d.agent_kind AND c.model = d.model AND c.sender = d.sender
		WHEN MATCHED AND c.number + d.number = 0 THEN DELETE
		WHEN MATCHED THEN UPDATE SET number = c.number + d.number
		WHEN NOT MATCHED THEN INSERT VALUES (d.owner, d.status, d.agent_kind, d.model, d.sender, d.number);
	END
$$;
CREATE FUNCTION conversation_updates.add_tag_counts(
	changes conversation_updates.tag_value_counts[]
) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM 1 FROM conversation_updates.positions FOR UPDATE;
		MERGE INTO conversation_updates.tag_value_counts c
		USING (SELECT * FROM unnest(changes)) d ON c.key = d.key AND c.value = d.value AND c.owner = d.owner
		WHEN MATCHED AND c.number + d.number = 0 THEN DELETE
		WHEN MATCHED THEN UPDATE SET number = c.number + d.number
		WHEN NOT MATCHED THEN INSERT VALUES (d.owner, d.key, d.value, d.number);
		MERGE INTO conversation_updates.tag_key_counts c
		USING (
			SELECT u.owner, u.key, sum(u.number)::bigint AS number FROM unnest(changes) u
			GROUP BY 1, 2 HAVING sum(u.number) <> 0
		) d ON c.key = d.key AND c.owner = d.owner
		WHEN MATCHED AND c.number + d.number = 0 THEN DELETE
		WHEN MATCHED THEN UPDATE SET number = c.number + d.number
		WHEN NOT MATCHED THEN INSERT VALUES (d.owner, d.key, d.number);
	END
$$;

-- Counts the rows that a statement has changed.
CREATE FUNCTION conversation_updates.count_conversations() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		changes conversation_updates.conversation_counts[];
	BEGIN
		IF TG_OP = 'INSERT' THEN
			SELECT array_agg(r::conversation_updates.conversation_counts) INTO changes FROM (
				SELECT coalesce(owner, ''), status, agent_kind, model, coalesce(sender, ''), count(*) FROM after
				GROUP BY 1, 2, 3, 4, 5
			) r;
		ELSIF TG_OP = 'DELETE' THEN
			SELECT array_agg(r::conversation_updates.conversation_counts) INTO changes FROM (
				SELECT coalesce(owner, ''), status, agent_kind, model, coalesce(sender, ''), -count(*) FROM before
				GROUP BY 1, 2, 3, 4, 5
			) r;
		ELSE
			SELECT array_agg(r::conversation_updates.conversation_counts) INTO changes FROM (
				SELECT coalesce(owner, ''), status, agent_kind, model, coalesce(sender, ''), sum(number)::bigint FROM (
					SELECT owner, status, agent_kind, model, sender, -1 AS number FROM before
					UNION ALL SELECT owner, status, agent_kind, model, sender, 1 FROM after
				) changed
				GROUP BY 1, 2, 3, 4, 5 HAVING sum(number) <> 0
			) r;
		END IF;
		IF changes IS NOT NULL THEN PERFORM conversation_updates.add_conversation_counts(changes); END IF;
		RETURN NULL;
	END
$$;
-- A tag is inserted in the statement of its conversation or later, and removed before it.
CREATE FUNCTION conversation_updates.count_tags() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		changes conversation_updates.tag_value_counts[];
	BEGIN
		IF TG_OP = 'INSERT' THEN
			SELECT array_agg(r::conversation_updates.tag_value_counts) INTO changes FROM (
				SELECT coalesce(c.owner, ''), t.key, t.value, count(*)
				FROM after t JOIN conversation_updates.conversations c ON c.conversation_id = t.conversation_id
				GROUP BY 1, 2, 3
			) r;
		ELSIF TG_OP = 'DELETE' THEN
			SELECT array_agg(r::conversation_updates.tag_value_counts) INTO changes FROM (
				SELECT coalesce(c.owner, ''), t.key, t.value, -count(*)
				FROM before t JOIN conversation_updates.conversations c ON c.conversation_id = t.conversation_id
				GROUP BY 1, 2, 3
			) r;
		ELSE
			SELECT array_agg(r::conversation_updates.tag_value_counts) INTO changes FROM (
				SELECT coalesce(c.owner, ''), t.key, t.value, sum(t.number)::bigint FROM (
					SELECT conversation_id, key, value, sum(number) AS number FROM (
						SELECT conversation_id, key, value, -1 AS number FROM before
						UNION ALL SELECT conversation_id, key, value, 1 FROM after
					) changed
					GROUP BY 1, 2, 3 HAVING sum(number) <> 0
				) t
				JOIN conversation_updates.conversations c ON c.conversation_id = t.conversation_id
				GROUP BY 1, 2, 3 HAVING sum(t.number) <> 0
			) r;
		END IF;
		IF changes IS NOT NULL THEN PERFORM conversation_updates.add_tag_counts(changes); END IF;
		RETURN NULL;
	END
$$;
CREATE FUNCTION conversation_updates.count_assigned_tags() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		changes conversation_updates.tag_value_counts[];
	BEGIN
		SELECT array_agg(r::conversation_updates.tag_value_counts) INTO changes FROM (
			SELECT coalesce(o.owner, ''), t.key, t.value, o.number
			FROM conversation_updates.tags t, (VALUES (OLD.owner, -1::bigint), (NEW.owner, 1::bigint)) o (owner, number)
			WHERE t.conversation_id = NEW.conversation_id
		) r;
		IF changes IS NOT NULL THEN PERFORM conversation_updates.add_tag_counts(changes); END IF;
		RETURN NULL;
	END
$$;

CREATE TRIGGER conversations_added AFTER INSERT ON conversation_updates.conversations
	REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.count_conversations();
CREATE TRIGGER conversations_changed AFTER UPDATE ON conversation_updates.conversations
	REFERENCING OLD TABLE AS before NEW TABLE AS after
	FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.count_conversations();
CREATE TRIGGER conversations_removed AFTER DELETE ON conversation_updates.conversations
	REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.count_conversations();
CREATE TRIGGER tags_added AFTER INSERT ON conversation_updates.tags
	REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.count_tags();
CREATE TRIGGER tags_changed AFTER UPDATE ON conversation_updates.tags
	REFERENCING OLD TABLE AS before NEW TABLE AS after
	FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.count_tags();
CREATE TRIGGER tags_removed AFTER DELETE ON conversation_updates.tags
	REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.count_tags();
CREATE TRIGGER tags_assigned AFTER UPDATE OF owner ON conversation_updates.conversations
	FOR EACH ROW WHEN (OLD.owner IS DISTINCT FROM NEW.owner)
	EXECUTE FUNCTION conversation_updates.count_assigned_tags();
