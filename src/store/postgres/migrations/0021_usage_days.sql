-- Which conversations have usage on which days (UTC): `day` is the number of days since the Unix epoch. Reports count
-- distinct conversations with it. The triggers below derive it from usage_ledger.
CREATE TABLE conversation_updates.usage_days (
	day bigint NOT NULL,
	model text COLLATE "C" NOT NULL,
	conversation uuid NOT NULL,
	usage_id text COLLATE "C" NOT NULL,
	agent_kind text COLLATE "C" NOT NULL,
	PRIMARY KEY (day, model, conversation, usage_id, agent_kind)
);
INSERT INTO conversation_updates.usage_days
SELECT DISTINCT (quarter - (quarter % 96 + 96) % 96) / 96, model, conversation, usage_id, agent_kind
FROM conversation_updates.usage_ledger;
CREATE FUNCTION conversation_updates.add_usage_days() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO conversation_updates.usage_days
		SELECT DISTINCT (quarter - (quarter % 96 + 96) % 96) / 96, model, conversation, usage_id, agent_kind FROM after
		ON CONFLICT DO NOTHING;
		RETURN NULL;
	END
$$;
CREATE FUNCTION conversation_updates.remove_usage_days() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		DELETE FROM conversation_updates.usage_days d USING before o
		WHERE d.day = (o.quarter - (o.quarter % 96 + 96) % 96) / 96 AND d.model = o.model
			AND d.conversation = o.conversation AND d.usage_id = o.usage_id AND d.agent_kind = o.agent_kind
			AND NOT EXISTS (
				SELECT 1 FROM conversation_updates.usage_ledger l
				WHERE l.conversation = o.conversation AND l.quarter >= d.day * 96 AND l.quarter < d.day * 96 + 96
					AND l.model = o.model AND l.usage_id = o.usage_id AND l.agent_kind = o.agent_kind
			);
		RETURN NULL;
	END
$$;
CREATE TRIGGER usage_added AFTER INSERT ON conversation_updates.usage_ledger
	REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.add_usage_days();
CREATE TRIGGER usage_removed AFTER DELETE ON conversation_updates.usage_ledger
	REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION conversation_updates.remove_usage_days();

-- Sums of all time have the length 2^32. They begin at 0, those of the time before the Unix epoch at -2^32.
INSERT INTO conversation_updates.usage_sums
SELECT 4294967296, CASE WHEN start < 0 THEN -4294967296 ELSE 0 END, model, usage_id, agent_kind, sender, owner,
	least(greatest(sum(cost), -9223372036854775808), 9223372036854775807),
	least(greatest(sum(prompt_tokens), -9223372036854775808), 9223372036854775807),
	least(greatest(sum(completion_tokens), -9223372036854775808), 9223372036854775807),
	least(greatest(sum(cache_read_tokens), -9223372036854775808), 9223372036854775807),
	least(greatest(sum(cache_write_tokens), -9223372036854775808), 9223372036854775807),
	least(greatest(sum(reasoning_tokens), -9223372036854775808), 9223372036854775807),
	least(greatest(sum(calls), -9223372036854775808), 9223372036854775807)
FROM conversation_updates.usage_sums WHERE length = 96 GROUP BY 1, 2, 3, 4, 5, 6, 7;
