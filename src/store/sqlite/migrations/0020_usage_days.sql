-- Which conversations have usage on which days (UTC): `day` is the number of days since the Unix epoch. Reports count
-- distinct conversations with it. The triggers below derive it from usage_ledger.
CREATE TABLE usage_days (
	day INTEGER NOT NULL,
	model TEXT NOT NULL,
	conversation INTEGER NOT NULL,
	usage_id TEXT NOT NULL,
	agent_kind TEXT NOT NULL,
	PRIMARY KEY (day, model, conversation, usage_id, agent_kind)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_days
SELECT DISTINCT (quarter - (quarter % 96 + 96) % 96) / 96, model, conversation, usage_id, agent_kind FROM usage_ledger;
CREATE TRIGGER usage_added AFTER INSERT ON usage_ledger BEGIN
	INSERT INTO usage_days
	VALUES (
		(NEW.quarter - (NEW.quarter % 96 + 96) % 96) / 96, NEW.model, NEW.conversation, NEW.usage_id, NEW.agent_kind
	)
	ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER usage_removed AFTER DELETE ON usage_ledger BEGIN
	DELETE FROM usage_days
	WHERE day = (OLD.quarter - (OLD.quarter % 96 + 96) % 96) / 96 AND model = OLD.model
		AND conversation = OLD.conversation AND usage_id = OLD.usage_id AND agent_kind = OLD.agent_kind
		AND NOT EXISTS (
			SELECT 1 FROM usage_ledger l
			WHERE l.conversation = OLD.conversation AND l.quarter >= day * 96 AND l.quarter < day * 96 + 96
				AND l.model = OLD.model AND l.usage_id = OLD.usage_id AND l.agent_kind = OLD.agent_kind
		);
END;

-- Sums of all time have the length 2^32. They begin at 0, those of the time before the Unix epoch at -2^32.
INSERT INTO usage_sums
SELECT 4294967296, iif(start < 0, -4294967296, 0), model, usage_id, agent_kind, sender, owner,
	CAST(total(cost) AS INTEGER), CAST(total(prompt_tokens) AS INTEGER), CAST(total(completion_tokens) AS INTEGER),
	CAST(total(cache_read_tokens) AS INTEGER), CAST(total(cache_write_tokens) AS INTEGER),
	CAST(total(reasoning_tokens) AS INTEGER), CAST(total(calls) AS INTEGER)
FROM usage_sums WHERE length = 96 GROUP BY 1, 2, 3, 4, 5, 6, 7;
