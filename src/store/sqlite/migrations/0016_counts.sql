-- Numbers of conversations that have the same values of all these columns, and numbers of tags. Empty: no owner, no
-- sender. The triggers below keep them; a row whose number becomes zero is removed.
CREATE TABLE conversation_counts (
	owner TEXT NOT NULL,
	status INTEGER NOT NULL,
	agent_kind TEXT NOT NULL,
	model TEXT NOT NULL,
	sender TEXT NOT NULL,
	number INTEGER NOT NULL,
	PRIMARY KEY (owner, status, agent_kind, model, sender)
) STRICT, WITHOUT ROWID;
CREATE TABLE tag_key_counts (
	owner TEXT NOT NULL,
	key TEXT NOT NULL,
	number INTEGER NOT NULL,
	PRIMARY KEY (key, owner)
) STRICT, WITHOUT ROWID;
CREATE TABLE tag_value_counts (
	owner TEXT NOT NULL,
	key TEXT NOT NULL,
	value TEXT NOT NULL,
	number INTEGER NOT NULL,
	PRIMARY KEY (key, value, owner)
) STRICT, WITHOUT ROWID;

INSERT INTO conversation_counts
SELECT coalesce(owner, ''), status, agent_kind, model, coalesce(sender, ''), count(*) FROM conversations
GROUP BY 1, 2, 3, 4, 5;
INSERT INTO tag_key_counts
SELECT coalesce(c.owner, ''), t.key, count(*) FROM tags t JOIN conversations c ON c.id = t.conversation GROUP BY 1, 2;
INSERT INTO tag_value_counts
SELECT coalesce(c.owner, ''), t.key, t.value, count(*) FROM tags t JOIN conversations c ON c.id = t.conversation
GROUP BY 1, 2, 3;

CREATE TRIGGER conversation_added AFTER INSERT ON conversations BEGIN
	INSERT INTO conversation_counts
	VALUES (coalesce(NEW.owner, ''), NEW.status, NEW.agent_kind, NEW.model, coalesce(NEW.sender, ''), 1)
	ON CONFLICT DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER conversation_removed AFTER DELETE ON conversations BEGIN
	UPDATE conversation_counts SET number = number - 1
	WHERE owner = coalesce(OLD.owner, '') AND status = OLD.status AND agent_kind = OLD.agent_kind AND model = OLD.model
		AND sender = coalesce(OLD.sender, '');
	DELETE FROM conversation_counts
	WHERE owner = coalesce(OLD.owner, '') AND status = OLD.status AND agent_kind = OLD.agent_kind AND model = OLD.model
		AND sender = coalesce(OLD.sender, '') AND number = 0;
END;
CREATE TRIGGER conversation_changed AFTER UPDATE OF owner, status, agent_kind, model, sender ON conversations
WHEN (OLD.owner, OLD.status, OLD.agent_kind, OLD.model, OLD.sender)
	IS NOT (NEW.owner, NEW.status, NEW.agent_kind, NEW.model, NEW.sender)
BEGIN
	INSERT INTO conversation_counts
	VALUES (coalesce(NEW.owner, ''), NEW.status, NEW.agent_kind, NEW.model, coalesce(NEW.sender, ''), 1)
	ON CONFLICT DO UPDATE SET number = number + 1;
	UPDATE conversation_counts SET number = number - 1
	WHERE owner = coalesce(OLD.owner, '') AND status = OLD.status AND agent_kind = OLD.agent_kind AND model = OLD.model
		AND sender = coalesce(OLD.sender, '');
	DELETE FROM conversation_counts
	WHERE owner = coalesce(OLD.owner, '') AND status = OLD.status AND agent_kind = OLD.agent_kind AND model = OLD.model
		AND sender = coalesce(OLD.sender, '') AND number = 0;
END;
-- A tag is inserted after its conversation, and removed before it. It is never changed but for its sequence.
CREATE TRIGGER tag_added AFTER INSERT ON tags BEGIN
	INSERT INTO tag_key_counts SELECT coalesce(owner, ''), NEW.key, 1 FROM conversations WHERE id = NEW.conversation
	ON CONFLICT DO UPDATE SET number = number + 1;
	INSERT INTO tag_value_counts
	SELECT coalesce(owner, ''), NEW.key, NEW.value, 1 FROM conversations WHERE id = NEW.conversation
	ON CONFLICT DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tag_removed AFTER DELETE ON tags BEGIN
	UPDATE tag_key_counts SET number = number - 1
	WHERE key = OLD.key AND owner = (SELECT coalesce(owner, '') FROM conversations WHERE id = OLD.conversation);
	DELETE FROM tag_key_counts
	WHERE key = OLD.key AND owner = (SELECT coalesce(owner, '') FROM conversations WHERE id = OLD.conversation)
		AND number = 0;
	UPDATE tag_value_counts SET number = number - 1
	WHERE key = OLD.key AND value = OLD.value
		AND owner = (SELECT coalesce(owner, '') FROM conversations WHERE id = OLD.conversation);
	DELETE FROM tag_value_counts
	WHERE key = OLD.key AND value = OLD.value
		AND owner = (SELECT coalesce(owner, '') FROM conversations WHERE id = OLD.conversation) AND number = 0;
END;
CREATE TRIGGER tags_assigned AFTER UPDATE OF owner ON conversations WHEN OLD.owner IS NOT NEW.owner BEGIN
	INSERT INTO tag_key_counts
	SELECT coalesce(NEW.owner, ''), key, 1 FROM tags WHERE conversation = NEW.id
	ON CONFLICT DO UPDATE SET number = number + 1;
	INSERT INTO tag_value_counts
	SELECT coalesce(NEW.owner, ''), key, value, 1 FROM tags WHERE conversation = NEW.id
	ON CONFLICT DO UPDATE SET number = number + 1;
	UPDATE tag_key_counts SET number = number - 1
	WHERE owner = coalesce(OLD.owner, '') AND key IN (SELECT key FROM tags WHERE conversation = NEW.id);
	UPDATE tag_value_counts SET number = number - 1
	WHERE owner = coalesce(OLD.owner, '') AND (key, value) IN (SELECT key, value FROM tags WHERE conversation = NEW.id);
	DELETE FROM tag_key_counts
	WHERE owner = coalesce(OLD.owner, '') AND key IN (SELECT key FROM tags WHERE conversation = NEW.id) AND number = 0;
	DELETE FROM tag_value_counts
	WHERE owner = coalesce(OLD.owner, '') AND (key, value) IN (SELECT key, value FROM tags WHERE conversation = NEW.id)
		AND number = 0;
END;
