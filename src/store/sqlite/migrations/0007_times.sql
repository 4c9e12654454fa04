-- `life_began_at` is the created_at of the records of the conversation's present life; NULL while none has it.
ALTER TABLE conversations ADD COLUMN life_began_at INTEGER;
UPDATE conversations SET life_began_at = created_at;

-- Times of receipt stand in for missing times of the record: that of the first update, and that of the current one.
UPDATE conversations
SET created_at = (SELECT min(u.received_at) FROM updates u WHERE u.conversation = conversations.id)
WHERE created_at IS NULL;
UPDATE conversations
SET updated_at = (SELECT u.received_at FROM updates u WHERE u.sequence = conversations.sequence)
WHERE updated_at IS NULL;

-- `member_times` has the time of the last state update of each member, as JSON.
ALTER TABLE conversations RENAME COLUMN told TO member_times;
-- When the latest state update happened.
ALTER TABLE activities RENAME COLUMN told_at TO last_state_update_at;
