import { expect, test } from "vitest";
import { ConversationReads } from "../../src/conversations/conversation-reads.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import type { LogListener } from "../../src/store/sequence-log.ts";
import type { Store } from "../../src/store/store.ts";
import { format, Reading } from "./read/reading.ts";

const PARENT = "0190d6a0-0000-7000-8000-000000000001";
const CHILD = "0190d6a0-0000-7000-8000-000000000002";

/** @param updates replaces parts of the log of updates */
function readsOf({ store, vault }: Reading, updates: Partial<Store["updates"]>): ConversationReads {
	return new ConversationReads({
		...{ store: { ...store, updates: { ...store.updates, ...updates } }, format, vault },
		...{ events: new EventFormat(format, [], "UTC"), watches: { stopping: new AbortController().signal } },
		refused: { bodyOf: async () => undefined },
		...{ clocks: { of: () => undefined }, onUnreadable: () => undefined, onUnreadableEvent: () => undefined },
		onErased: () => undefined,
	});
}

/** Returns the summaries of the updates of a conversation. */
async function listed(reads: ConversationReads, conversationId: string) {
	const page = { conversationId, afterSequence: 0n, pageSize: 0, pageToken: "" };
	const view = { full: false, secrets: "redacted", secretPaths: false } as const;
	const { entries } = await reads.of({ owner: undefined }).updates.list({ ...page, ...view });
	return entries.map(({ summary }) => summary);
}

test("a page that was read before an erasure leaves nothing for those that are read after it", async () => {
	await using reading = await Reading.open();
	const { store } = reading;
	await reading.keep({ id: PARENT });
	await reading.keep({ id: CHILD, parent_conversation_id: PARENT });
	let isErased = false;
	const reads = readsOf(reading, {
		async list(query) {
			const page = await store.updates.list(query);
			if (!isErased) await store.erase({ conversationId: PARENT, owner: undefined, erasedAt: 0n });
			isErased = true;
			return page;
		},
	});
	const parents = async () => (await listed(reads, CHILD)).map((summary) => summary?.parentConversationId);
	expect(await parents()).toEqual([PARENT]);
	expect(await parents()).toEqual([undefined]);
});

test("after a loss of updates, their sequences have no views of the lost ones", async () => {
	await using lost = await Reading.open();
	await using kept = await Reading.open();
	await lost.keep({ id: CHILD, title: "lost" });
	await kept.keep({ id: CHILD, title: "kept" });
	let { store } = lost;
	const listeners: LogListener[] = [];
	const reads = readsOf(lost, {
		list: (query) => store.updates.list(query),
		subscribe(listener) {
			listeners.push(listener);
			return () => undefined;
		},
	});
	const titles = async () => (await listed(reads, CHILD)).map((summary) => summary?.title);
	expect(await titles()).toEqual(["lost"]);
	store = kept.store;
	for (const listener of listeners) listener(0n, "lost");
	expect(await titles()).toEqual(["kept"]);
});
