-- `life_began_at` is the created_at of the records of the conversation's present life; NULL while none has it.
ALTER TABLE conversation_updates.conversations ADD COLUMN life_began_at bigint;
UPDATE conversation_updates.conversations SET life_began_at = created_at WHERE created_at IS NOT NULL;

-- Times of receipt stand in for missing times of the record: that of the first update, and that of the current one.
UPDATE conversation_updates.conversations c
SET created_at = (
	SELECT min(u.received_at) FROM conversation_updates.updates u WHERE u.conversation_id = c.conversation_id
)
WHERE created_at IS NULL;
UPDATE conversation_updates.conversations c
SET updated_at = (SELECT u.received_at FROM conversation_updates.updates u WHERE u.sequence = c.sequence)
WHERE updated_at IS NULL;

-- `member_times` has the time of the last state update of each member, as JSON.
ALTER TABLE conversation_updates.conversations RENAME COLUMN told TO member_times;
-- When the latest state update happened.
ALTER TABLE conversation_updates.activities RENAME COLUMN told_at TO last_state_update_at;
