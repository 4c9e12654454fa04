import { type ErasingEngine, erase } from "../erase.ts";
import { type Erased, type EraseRequest, erasureColumns, REPLACE_ERASURE } from "../erasure.ts";
import { bigint } from "../values.ts";
import type { Connections } from "./connections.ts";
import { lockLogs } from "./locks.ts";
import { notifyQueries } from "./log.ts";
import { isConversationId } from "./rows.ts";
import { postgresSession } from "./session.ts";
import { removeTextsQuery } from "./text-index.ts";

/**
 * Erases a conversation: see `Store.erase`. The views have followed the logs. `rewrites` says how often entries of the
 * database were rewritten; undefined if none was now.
 */
export async function eraseConversation(
	connections: Connections,
	request: EraseRequest,
): Promise<(Erased & { readonly rewrites?: bigint }) | undefined> {
	if (!isConversationId(request.conversationId)) return undefined;
	return await connections.transaction(async (transaction) => {
		const session = postgresSession(transaction);
		let rewrites: bigint | undefined;
		const engine: ErasingEngine = {
			async removeEntries(conversationId: string) {
				const [events = []] = await transaction.query({
					text: "SELECT sequence FROM conversation_updates.events WHERE conversation_id = $1",
					values: [conversationId],
				});
				await transaction.query(
					...["updates", "events", "search_titles"].map((table) => ({
						text: `DELETE FROM conversation_updates.${table} WHERE conversation_id = $1`,
						values: [conversationId],
					})),
					removeTextsQuery(events.map(({ sequence }) => bigint(sequence))),
				);
			},
			async keep(erasure) {
				if (await transaction.isDistributed()) await transaction.query(lockLogs);
				const [[row] = []] = await transaction.query(
					{
						text: `
							UPDATE conversation_updates.positions SET newest_update = newest_update + 1, rewrites = rewrites + 1
							RETURNING newest_update, rewrites
						`,
					},
					...notifyQueries(connections.notifies, "rewritten"),
				);
				const kept = { ...erasure, sequence: bigint(row?.newest_update) };
				await session.insert("erasures", [erasureColumns(kept)], REPLACE_ERASURE);
				rewrites = bigint(row?.rewrites);
				return kept;
			},
		};
		const erased = await erase(session, engine, request);
		return erased && { ...erased, ...(rewrites === undefined ? {} : { rewrites }) };
	});
}
