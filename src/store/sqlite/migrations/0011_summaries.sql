-- When the status of a conversation last became running; NULL when it never did. Of earlier runs, the time of receipt of
-- the update with the change running (6) is known.
ALTER TABLE conversations ADD COLUMN run_started_at INTEGER;
UPDATE conversations SET run_started_at = (
	SELECT max(u.received_at) FROM updates u WHERE u.conversation = conversations.id AND u.current = 1 AND u.change = 6
);
-- The first message of a user, and the latest error, which `error` has as JSON.
ALTER TABLE activities ADD COLUMN first_message_at INTEGER;
ALTER TABLE activities ADD COLUMN first_message TEXT;
ALTER TABLE activities ADD COLUMN error_at INTEGER;
ALTER TABLE activities ADD COLUMN error TEXT;
ALTER TABLE activities ADD COLUMN error_sequence INTEGER;
