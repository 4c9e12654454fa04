import type { KnownConversation } from "../known-conversation.ts";
import { bigint, integer, nullable, text } from "../values.ts";
import type { Behind, ViewName } from "../views/follow.ts";
import type { Statements } from "./statements.ts";

/**
 * Notes that a conversation changes without an entry in a log, so that the views derive its rows. The caller has begun a
 * transaction.
 */
export function markChanged(statements: Statements, conversationId: string): void {
	statements.prepare("INSERT INTO changed_conversations VALUES (?) ON CONFLICT DO NOTHING").run(conversationId);
}

/** Returns the origin of a conversation that was removed, and of which usage is kept. */
export function findRemoved(statements: Statements, conversationId: string): KnownConversation["removed"] {
	const row = statements
		.prepare("SELECT sender, owner FROM usage_conversations WHERE conversation_id = ?")
		.get(conversationId);
	return row && { sender: text(row.sender), owner: text(row.owner) };
}

/** Returns the newest entries if one of the views has not followed up to them; otherwise undefined. */
export function newestIfBehind(statements: Statements, views: readonly ViewName[]): Behind | undefined {
	return views.map((view) => newestIfViewIsBehind(statements, view)).find((behind) => behind !== undefined);
}

function newestIfViewIsBehind(statements: Statements, view: ViewName): Behind | undefined {
	const row = statements
		.prepare(`
			SELECT v.updates, v.events, (SELECT max(sequence) FROM updates) AS newest_update,
				(SELECT max(sequence) FROM events) AS newest_event, (SELECT count(*) FROM changed_conversations) AS changed
			FROM views v WHERE v.name = ?
		`)
		.get(view);
	const newest = {
		view,
		updates: nullable(bigint, row?.newest_update ?? null) ?? 0n,
		events: nullable(bigint, row?.newest_event ?? null) ?? 0n,
	};
	const isBehind =
		newest.updates > bigint(row?.updates) || newest.events > bigint(row?.events) || integer(row?.changed) > 0;
	return isBehind ? newest : undefined;
}
