-- When the status of a conversation last became running; NULL when it never did. Of earlier runs, the time of receipt of
-- the update with the change running (6) is known.
ALTER TABLE conversation_updates.conversations ADD COLUMN run_started_at bigint;
UPDATE conversation_updates.conversations c SET run_started_at = r.received_at FROM (
	SELECT conversation_id, max(received_at) AS received_at FROM conversation_updates.updates
	WHERE current AND change = 6 GROUP BY conversation_id
) r WHERE r.conversation_id = c.conversation_id;
-- The first message of a user, and the latest error, which `error` has as JSON.
ALTER TABLE conversation_updates.activities ADD COLUMN first_message_at bigint;
ALTER TABLE conversation_updates.activities ADD COLUMN first_message text;
ALTER TABLE conversation_updates.activities ADD COLUMN error_at bigint;
ALTER TABLE conversation_updates.activities ADD COLUMN error text;
ALTER TABLE conversation_updates.activities ADD COLUMN error_sequence bigint;
-- Sequence of the event whose error the summary of the update shows. The fields in `activity` lack it.
ALTER TABLE conversation_updates.updates ADD COLUMN error_sequence bigint;
