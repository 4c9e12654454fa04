import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, onTestFinished, test } from "vitest";
import { ConversationFilterSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { conversationEraser } from "../../../src/conversations/erase.ts";
import { idDigest } from "../../../src/store/erasure.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../../src/store/store.ts";
import { appendEvents, batch, event, record } from "../../store/event-samples.ts";
import { append, sample, second, start } from "../../store/samples.ts";
import { TempFolder } from "../../support/temp.ts";

const CALLER = { name: "operator" };

async function openStore(): Promise<Store> {
	const folder = new TempFolder();
	const store = await openSqliteStore(folder.file("conversations.db"), { error: () => undefined });
	onTestFinished(async () => {
		await store.close();
		folder[Symbol.dispose]();
	});
	return store;
}

/** Returns the store. After the first list of conversations that it has read, it does something. */
function afterFirstList(store: Store, work: () => Promise<unknown>): Store {
	let isDone = false;
	return {
		...store,
		async listConversations(query) {
			const found = await store.listConversations(query);
			if (!isDone) await work();
			isDone = true;
			return found;
		},
	};
}

test("a conversation that becomes active before its turn is not erased by its inactivity", async () => {
	const store = await openStore();
	const columns = { updatedAt: start };
	const [silent, active] = [sample({ receivedAt: start, columns }), sample({ receivedAt: start, columns })];
	for (const one of [silent, active]) await append(store, one);
	const receivedAt = start + 60n * second;
	const erased: string[] = [];
	const erasing = conversationEraser(
		afterFirstList(store, () =>
			appendEvents(store, batch(active.conversationId, [event({ happenedAt: receivedAt })], { receivedAt })),
		),
		async (digest) => void erased.push(digest),
	);
	const filter = create(ConversationFilterSchema, { activityTo: timestampFromMs(Number(start / 1000n) + 30_000) });
	expect(await erasing.eraseMatching({ filter, max: 10, dryRun: false }, CALLER)).toEqual({
		ids: [silent.conversationId],
		matching: 2,
	});
	expect(erased).toEqual([idDigest(silent.conversationId)]);
	expect(await store.get(active.conversationId)).toMatchObject({ sequence: 2n });
});

test("a child whose record changes while many children are listed is erased too", async () => {
	const store = await openStore();
	const root = sample();
	const of = (n: number) => {
		const conversationId = `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
		return sample({ conversationId, columns: { parentId: root.conversationId, createdAt: start + BigInt(n) } });
	};
	await append(store, root);
	const children = Array.from({ length: 1001 }, (_, n) => of(n));
	await Promise.all(children.map((child) => append(store, child)));
	const asked: string[] = [];
	const changing: Store = {
		...afterFirstList(store, () => append(store, of(0))),
		// It says which conversations are to be erased, and keeps them.
		async erase({ conversationId }) {
			asked.push(conversationId);
			return undefined;
		},
	};
	const erasing = conversationEraser(changing, async () => undefined);
	await expect(erasing.erase({ id: root.conversationId, withChildren: true }, CALLER)).rejects.toMatchObject({
		kind: "not_found",
	});
	expect(asked.toSorted()).toEqual([root, ...children].map(({ conversationId }) => conversationId).toSorted());
});

test("a tree has the conversations of the owner of its root only, and nothing is below one that is not stored", async () => {
	const store = await openStore();
	const root = sample({ record: record({}) });
	const child = sample({ record: record({}), columns: { parentId: root.conversationId } });
	const foreign = sample({ columns: { parentId: root.conversationId } });
	for (const one of [root, child]) await append(store, one);
	await append(store, { ...foreign, poster: { sender: "red", owner: "red" } });
	const erasing = conversationEraser(store, async () => undefined);
	const erase = (id: string) => erasing.erase({ id, withChildren: true }, CALLER);
	expect(await erase(root.conversationId)).toBe(2);
	expect(await store.get(foreign.conversationId)).toMatchObject({ owner: "red" });
	await expect(erase(root.conversationId)).rejects.toMatchObject({ kind: "not_found" });
	expect(await store.get(foreign.conversationId)).toMatchObject({ owner: "red" });
});

test("the files are cleaned before the answer, also when more conversations meet the filter", async () => {
	const store = await openStore();
	const columns = { updatedAt: start };
	for (let n = 0; n < 3; n++) await append(store, sample({ receivedAt: start, columns }));
	const calls: string[] = [];
	const watched: Store = {
		...store,
		async erase(request) {
			calls.push("erase");
			return await store.erase(request);
		},
		async purge() {
			calls.push("purge");
			await store.purge();
		},
	};
	const erasing = conversationEraser(watched, async () => undefined);
	const filter = create(ConversationFilterSchema, { activityTo: timestampFromMs(Number(start / 1000n) + 30_000) });
	expect(await erasing.eraseMatching({ filter, max: 2, dryRun: false }, CALLER)).toMatchObject({ matching: 3 });
	expect(calls).toEqual(["erase", "erase", "purge"]);
	expect(await erasing.eraseMatching({ filter, max: 2, dryRun: true }, CALLER)).toMatchObject({ matching: 1 });
	expect(calls).toHaveLength(3);
});
