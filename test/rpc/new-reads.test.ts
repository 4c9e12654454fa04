import { expect, test } from "vitest";
import { ConversationReads } from "../../src/conversations/conversation-reads.ts";
import { visibleStore } from "../../src/conversations/read/visible-store.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import { format, Reading } from "../conversations/read/reading.ts";

test("the reads that methods and routes get are limited to the owner of their caller", async () => {
	await using reading = await Reading.open();
	const { store, vault } = reading;
	for (const owner of ["red", "blue", undefined]) {
		const { sequence } = await reading.keep({ title: `${owner}` });
		const [update] = await store.updates.list({ after: sequence - 1n, limit: 1, withRecords: false });
		const ids = [update?.conversationId ?? ""];
		if (owner !== undefined) await store.assignOwner({ owner, of: { ids }, limit: 1 });
	}
	// A context of methods and routes has no other way to read conversations.
	const reads = new ConversationReads({
		...{ store, format, vault, events: new EventFormat(format, [], "UTC") },
		watches: { stopping: new AbortController().signal },
		refused: { bodyOf: async () => undefined },
		...{ clocks: { of: () => undefined }, onUnreadable: () => undefined, onUnreadableEvent: () => undefined },
		onErased: () => undefined,
	});
	const titles = async (owner: string | undefined) => {
		const { list } = reads.of({ owner });
		const page = await list.list({ pageSize: 0, pageToken: "", full: false, secrets: "redacted" });
		return page.conversations.map(({ summary }) => summary.title);
	};
	expect(await titles("red")).toEqual(["red"]);
	expect(await titles("new")).toEqual([]);
	expect(await titles(undefined)).toEqual(["undefined", "blue", "red"]);
});

test("a method that the store is given later is out of reach of an owner, until it is limited", async () => {
	await using reading = await Reading.open();
	const later = { ...reading.store, listSomethingNew: async () => ["of everybody"] };
	expect("listSomethingNew" in visibleStore(later, undefined)).toBe(true);
	expect("listSomethingNew" in visibleStore(later, "red")).toBe(false);
});
