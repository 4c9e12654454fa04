import { bigint, integer, nullable } from "../values.ts";
import type { ViewPosition } from "../views/conversations.ts";
import type { Statements } from "./statements.ts";

/**
 * Notes that a conversation changes without an entry in a log, so that the views derive its rows. The caller has begun a
 * transaction.
 */
export function markChanged(statements: Statements, conversationId: string): void {
	statements.prepare("INSERT INTO changed_conversations VALUES (?) ON CONFLICT DO NOTHING").run(conversationId);
}

/** Returns the newest entries if the view of conversations has not followed up to them; otherwise undefined. */
export function newestIfBehind(statements: Statements): ViewPosition | undefined {
	const row = statements
		.prepare(`
			SELECT v.updates, v.events, (SELECT max(sequence) FROM updates) AS newest_update,
				(SELECT max(sequence) FROM events) AS newest_event, (SELECT count(*) FROM changed_conversations) AS changed
			FROM views v WHERE v.name = 'conversations'
		`)
		.get();
	const newest = {
		updates: nullable(bigint, row?.newest_update ?? null) ?? 0n,
		events: nullable(bigint, row?.newest_event ?? null) ?? 0n,
	};
	const isBehind =
		newest.updates > bigint(row?.updates) || newest.events > bigint(row?.events) || integer(row?.changed) > 0;
	return isBehind ? newest : undefined;
}
