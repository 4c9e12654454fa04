import { expect, test } from "vitest";
import { type RebuiltUsage, rebuildUsage } from "../../../src/conversations/ingest/rebuild-usage.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../../src/store/store.ts";
import { record } from "../../store/event-samples.ts";
import { append, sample } from "../../store/samples.ts";
import { TempFolder } from "../../support/temp.ts";

const [BUSY, QUIET] = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"];

/** Posts a record with more tokens than all before it. */
async function post(store: Store, conversationId: string, promptTokens: bigint): Promise<void> {
	const stats = { usageToMetrics: { agent: { modelName: "m", accumulatedTokenUsage: { promptTokens } } } };
	await append(store, sample({ conversationId, record: record({ stats }) }));
}

test("a conversation that is posted to each time it is counted does not keep the others from being counted", async () => {
	using folder = new TempFolder();
	await using store = await openSqliteStore(folder.file("conversations.db"), { error() {} });
	let tokens = 1n;
	for (const id of [QUIET, BUSY]) await post(store, id, tokens);
	let posts = 10;
	const busy: Parameters<typeof rebuildUsage>[0] = {
		updates: store.updates,
		events: store.events,
		listConversations: (query) => store.listConversations(query),
		getOrigin: (id) => store.getOrigin(id),
		getUsage: async (id) => {
			const usage = await store.getUsage(id);
			// The ledger that is read is wrong, and another one once it would be corrected.
			if (id === BUSY && posts > 0 && usage.ledger !== undefined) {
				posts -= 1;
				tokens += 1n;
				await post(store, id, tokens);
				return { ...usage, ledger: { ...usage.ledger, rows: [] } };
			}
			return usage;
		},
		correctUsage: (correction) => store.correctUsage(correction),
		listUsageDays: () => store.listUsageDays(),
		correctUsageSums: (day) => store.correctUsageSums(day),
	};
	const run = async () => {
		let last: RebuiltUsage | undefined;
		const ended = rebuildUsage(busy, new AbortController().signal, (done) => {
			last = done;
		});
		return { error: await ended.then(() => undefined, String), conversations: last?.conversations };
	};
	expect(await run()).toEqual({
		error: expect.stringContaining("1 conversations changed while they were counted: run it again"),
		conversations: 1,
	});
	expect(posts).toBe(0);
	expect(await run()).toEqual({ error: undefined, conversations: 2 });
});
