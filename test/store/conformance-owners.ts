import { fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { eventViews } from "../../src/conversations/read/events.ts";
import { UpdateViews } from "../../src/conversations/read/updates.ts";
import { type StoreReads, visibleStore } from "../../src/conversations/read/visible-store.ts";
import { eventWatches, updateWatches } from "../../src/conversations/watch/watches.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import type { Poster } from "../../src/store/owners.ts";
import type { Store } from "../../src/store/store.ts";
import type { UsageGroup } from "../../src/store/usage-report.ts";
import { appendEvents, batch, event, record as recordOf } from "./event-samples.ts";
import { append, sample, second, start } from "./samples.ts";

/** A key without an owner, and the keys of two owners. */
const POSTERS: Readonly<Record<string, Poster>> = {
	operator: { sender: "operator", owner: undefined },
	red: { sender: "red-server", owner: "red" },
	"red-too": { sender: "red-server-2", owner: "red" },
	blue: { sender: "blue-server", owner: "blue" },
};
const OWNERS = ["red", "blue"];
const REFUSAL = { kind: "permission_denied", message: "The conversation does not belong to the owner of this key" };

const id = (n: number) => `00000000-0000-4000-8000-00000000000${n}`;

/** A post of a record, or of an event, by a key to a conversation. */
interface Post {
	readonly by: string;
	readonly conversation: number;
	readonly kind: "record" | "event";
	readonly n: number;
}

const posts = fc
	.array(
		fc.record({
			by: fc.constantFrom(...Object.keys(POSTERS)),
			conversation: fc.nat(3),
			kind: fc.constantFrom("record" as const, "event" as const),
		}),
		{ maxLength: 24 },
	)
	.map((list) => list.map((post, n): Post => ({ ...post, n })));

async function send(store: Store, { by, conversation, kind, n }: Post, poster = POSTERS[by]): Promise<void> {
	const receivedAt = start + BigInt(n) * second;
	if (kind === "event") {
		const one = event({ eventId: `event ${n}`, happenedAt: receivedAt, text: Buffer.from(`{"id":"event ${n}"}`) });
		await appendEvents(store, batch(id(conversation), [one], { receivedAt, poster }));
		return;
	}
	const status = ["running", "idle", "running", "deleting"][n % 4] ?? "";
	const columns = { updatedAt: receivedAt, title: `title ${n}`, status };
	const accumulatedTokenUsage = { promptTokens: BigInt(n) };
	const stats = { usageToMetrics: { agent: { modelName: `model ${n % 2}`, accumulatedTokenUsage } } };
	const record = recordOf({ title: `record ${n}`, stats });
	await append(store, { ...sample({ conversationId: id(conversation), receivedAt, record, columns }), poster });
}

/** Returns what a reader sees, without the numbers of sequences and versions, which depend on other owners. */
async function seen(store: StoreReads) {
	const plain = ({ summary, record }: { summary: Uint8Array; record: unknown }) => ({
		summary: fromBinary(ConversationSummarySchema, summary),
		record:
			record !== undefined && record !== null && typeof record === "object" && "bytes" in record
				? record.bytes
				: record,
	});
	const updates = await store.updates.list({ after: 0n, limit: 100, withRecords: true });
	const events = await store.events.list({ after: 0n, limit: 100 });
	const listed = await store.listConversations({ conditions: [], limit: 100, withRecords: true });
	const current = await Promise.all([0, 1, 2, 3].map((n) => store.get(id(n))));
	const range = await store.getUsageRange();
	const whole = { periods: range === undefined ? [] : [range], conditions: [], top: 0, limit: 100 };
	const reports = [
		[],
		[{ kind: "model" }, { kind: "owner" }],
		[{ kind: "sender" }, { kind: "conversation" }],
	] satisfies UsageGroup[][];
	const usage = await Promise.all(reports.map((groups) => store.reportUsage({ ...whole, groups })));
	return {
		...{ range, usage },
		updates: updates.map(({ conversationId, receivedAt, sender, owner, change, current: isCurrent, ...rest }) => ({
			...{ conversationId, receivedAt, sender, owner, change, isCurrent },
			...plain(rest),
		})),
		events: events.map(({ sequence: _, event: stored, ...rest }) => ({
			...rest,
			text: "unreadable" in stored ? undefined : stored.text,
		})),
		listed: listed.map(({ conversationId, ...rest }) => ({ conversationId, ...plain(rest) })),
		current: current.map((found) => found && { sender: found.sender, owner: found.owner, ...plain(found) }),
		pruned: [(await store.updates.range()).prunedThrough, (await store.events.range()).prunedThrough],
	};
}

/** @param open opens an empty store */
export function ownerConformance(open: () => Promise<Store>, factor: number): void {
	describe("owners", () => {
		it("see what a store with their data alone would return, and cannot post to others' conversations", async () => {
			await fc.assert(
				fc.asyncProperty(posts, async (list) => {
					await using shared = await open();
					const alone = new Map<string, Store>();
					try {
						for (const owner of OWNERS) alone.set(owner, await open());
						const owners = new Map<number, string | undefined>();
						for (const post of list) {
							const { owner } = POSTERS[post.by] ?? { owner: undefined };
							const known = owners.has(post.conversation);
							if (known && owner !== undefined && owners.get(post.conversation) !== owner) {
								await expect(send(shared, post)).rejects.toMatchObject(REFUSAL);
								continue;
							}
							if (!known) owners.set(post.conversation, owner);
							await send(shared, post);
							const own = alone.get(owners.get(post.conversation) ?? "");
							if (own !== undefined) await send(own, post);
						}
						for (const [owner, store] of alone)
							expect(await seen(visibleStore(shared, owner))).toEqual(await seen(visibleStore(store, owner)));
						for (const [owner, store] of alone)
							expect(await seen(visibleStore(store, owner))).toEqual(await seen(store));
					} finally {
						for (const store of alone.values()) await store.close();
					}
				}),
				{ numRuns: 3 * factor },
			);
		});

		it("learn of pruned entries of their own conversations only", async () => {
			await using store = await open();
			for (const n of [0, 1, 2]) await send(store, { by: "red", conversation: 0, kind: "record", n });
			await send(store, { by: "blue", conversation: 1, kind: "record", n: 3 });
			expect(await store.prune({ updatesPerConversation: 1, limit: 100 })).toBe(2);
			const prunedThrough = async (owner: string) => (await visibleStore(store, owner).updates.range()).prunedThrough;
			expect([await prunedThrough("red"), await prunedThrough("blue")]).toEqual([2n, 0n]);
		});

		it("have everything of the conversations that they are given, as if it had been theirs from the beginning", async () => {
			const plan = fc.array(fc.constantFrom(undefined, "red", "blue"), { minLength: 4, maxLength: 4 });
			await fc.assert(
				fc.asyncProperty(posts, plan, async (list, owners) => {
					await using given = await open();
					await using theirs = await open();
					const known = new Set<number>();
					for (const post of list) {
						const { conversation } = post;
						known.add(conversation);
						await send(given, { ...post, by: "operator" });
						await send(theirs, post, { sender: "operator", owner: owners[conversation] });
					}
					for (const policy of [
						{ updatesPerConversation: 2, limit: 100 },
						{ receivedBefore: start + second, limit: 100 },
					])
						for (const store of [given, theirs]) await store.prune(policy);
					for (const owner of OWNERS) {
						const ids = [...known].filter((n) => owners[n] === owner).map(id);
						// They belong to another owner first.
						for (const first of ["green", owner])
							expect(await given.assignOwner({ owner: first, of: { ids }, limit: 10 })).toBe(ids.length);
					}
					for (const owner of [...OWNERS, "green", undefined])
						expect(await seen(visibleStore(given, owner))).toEqual(await seen(visibleStore(theirs, owner)));
					const running = async (store: Store) =>
						(await store.listSenders()).running.toSorted((a, b) => (a.owner < b.owner ? -1 : 1));
					expect(await running(given)).toEqual(await running(theirs));
				}),
				{ numRuns: 3 * factor },
			);
		});

		it("have the usage of a removed conversation, to which nobody else may post", async () => {
			await using store = await open();
			const post = (poster: Poster | undefined, seconds: number, status: string) => {
				const receivedAt = start + BigInt(seconds) * second;
				const accumulatedTokenUsage = { promptTokens: 7n };
				const record = recordOf({
					stats: { usageToMetrics: { agent: { modelName: "model", accumulatedTokenUsage } } },
				});
				const columns = { updatedAt: receivedAt, status };
				return append(store, { ...sample({ conversationId: id(0), receivedAt, record, columns }), poster });
			};
			await post(POSTERS.operator, 0, "deleting");
			expect(await store.prune({ receivedBefore: start + 10n * second, limit: 10 })).toBe(1);
			expect(await store.assignOwner({ owner: "red", of: "all without an owner", limit: 10 })).toBe(1);
			const tokens = async (owner: string) => {
				const range = await store.getUsageRange(owner);
				const query = {
					periods: range === undefined ? [] : [range],
					groups: [],
					conditions: [],
					top: 0,
					limit: 9,
					owner,
				};
				return (await store.reportUsage(query)).rows.map(({ amounts }) => amounts.promptTokens);
			};
			expect([await tokens("red"), await tokens("blue")]).toEqual([[7n], []]);
			await expect(post(POSTERS.blue, 20, "idle")).rejects.toMatchObject(REFUSAL);
			await post(POSTERS.red, 21, "idle");
			expect((await store.getOwnership(id(0)))?.owner).toBe("red");
		});

		it("see in watches what they are given, also of the time before, and no more what they had", async () => {
			await using store = await open();
			const format = new RecordFormat();
			const views = new UpdateViews(store, {
				format,
				vault: new RecordVault(format, []),
				onUnreadable: () => undefined,
			});
			const ofEvents = eventViews(new EventFormat(format, [], "UTC"), () => undefined);
			const stopping = new AbortController();
			const updates = updateWatches(store, () => views, { stopping: stopping.signal });
			const events = eventWatches(store, ofEvents, { stopping: stopping.signal });
			const all = { start: "beginning", conversationId: undefined, filter: undefined } as const;
			/** Returns what an owner gets from the beginning to the newest entries. */
			const watched = async (owner: string): Promise<readonly (readonly unknown[])[]> => {
				const cancel = new AbortController();
				const found: unknown[][] = [];
				const view = { full: false, secrets: "redacted", secretPaths: false } as const;
				for await (const batch of updates.watch({ ...all, view }, cancel.signal, owner))
					for (const { message } of batch) {
						if (message.content.case === "update") found.push([message.sequence, message.content.value.summary?.owner]);
						else cancel.abort();
					}
				const cancelEvents = new AbortController();
				for await (const batch of events.watch({ ...all, secrets: "redacted" }, cancelEvents.signal, owner))
					for (const { message } of batch) {
						if (message.content.case === "event") found.push([message.sequence]);
						else cancelEvents.abort();
					}
				return found;
			};
			// Somebody else follows both logs, so that their newest entries are in memory.
			const left = new AbortController();
			const view = { full: false, secrets: "redacted", secretPaths: false } as const;
			const followers = [
				updates.watch({ ...all, view }, left.signal),
				events.watch({ ...all, secrets: "redacted" }, left.signal),
			];
			for (const follower of followers) await follower.next();
			const following = followers.map(async (follower) => {
				while (!(await follower.next()).done);
			});
			for (const n of [0, 1]) await send(store, { by: "red", conversation: n, kind: "record", n });
			await send(store, { by: "red", conversation: 0, kind: "event", n: 2 });
			await vi.waitFor(() => expect([updates.recent.usage.entries, events.recent.usage.entries]).toEqual([2, 1]));
			expect(await watched("red")).toEqual([[1n, "red"], [2n, "red"], [1n]]);
			expect(await store.assignOwner({ owner: "blue", of: { ids: [id(0)] }, limit: 10 })).toBe(1);
			expect(await watched("red")).toEqual([[2n, "red"]]);
			expect(await watched("blue")).toEqual([[1n, "blue"], [1n]]);
			await send(store, { by: "blue", conversation: 0, kind: "record", n: 3 });
			await vi.waitFor(() => expect(updates.recent.usage.entries).toBe(1));
			expect(await watched("red")).toEqual([[2n, "red"]]);
			expect(await watched("blue")).toEqual([[1n, "blue"], [3n, "blue"], [1n]]);
			left.abort();
			await Promise.all(following);
			stopping.abort();
		});

		it("stay none when a conversation without a sender gets that of its next post, as if it had had it always", async () => {
			const named = fc.array(fc.constantFrom(undefined, "operator", "agent"), { minLength: 24, maxLength: 24 });
			await fc.assert(
				fc.asyncProperty(posts, named, async (list, names) => {
					await using given = await open();
					await using theirs = await open();
					const posterOf = (sender: string | undefined) =>
						sender === undefined ? undefined : { sender, owner: undefined };
					const first = new Map<number, string>();
					for (const { conversation, n } of list) {
						const name = names[n];
						if (name !== undefined && !first.has(conversation)) first.set(conversation, name);
					}
					const begun = new Set<number>();
					for (const post of list) {
						const { conversation, n } = post;
						await send(given, { ...post, by: "" }, posterOf(names[n]));
						const sender = begun.has(conversation) ? names[n] : first.get(conversation);
						await send(theirs, { ...post, by: "" }, posterOf(sender));
						begun.add(conversation);
					}
					// Who posted an entry of the history stays what it was.
					const known = async (store: Store) => {
						const { updates, events, current, ...rest } = await seen(store);
						const counts = await store.countConversations({ conditions: [], group: { by: "sender" }, limit: 9 });
						const { running } = await store.listSenders();
						const summaries = [...updates, ...current].map((update) => update?.summary);
						const origins = await Promise.all([0, 1, 2, 3].map((n) => store.getOwnership(id(n))));
						return { ...rest, events: events.length, summaries, counts, running, origins };
					};
					expect(await known(given)).toEqual(await known(theirs));
					expect(await given.countWithoutSender()).toBe([...begun].filter((n) => !first.has(n)).length);
				}),
				{ numRuns: 3 * factor },
			);
		});

		it("and senders come from posts that are stored already, too, but not from refused ones", async () => {
			await using store = await open();
			const post: Post = { by: "", conversation: 0, kind: "record", n: 0 };
			const batchPost: Post = { by: "", conversation: 1, kind: "event", n: 1 };
			for (const one of [post, batchPost]) await send(store, one);
			for (const one of [post, batchPost]) await expect(send(store, one, POSTERS.blue)).rejects.toMatchObject(REFUSAL);
			const origins = () => Promise.all([store.getOwnership(id(0)), store.getOwnership(id(1))]);
			const none = { sender: undefined, owner: undefined };
			expect([await origins(), await store.countWithoutSender()]).toEqual([[none, none], 2]);
			for (const one of [post, batchPost]) await send(store, one, POSTERS.operator);
			for (const one of [post, batchPost]) await send(store, one, { sender: "agent", owner: undefined });
			expect([await origins(), await store.countWithoutSender()]).toEqual([[POSTERS.operator, POSTERS.operator], 0]);
			expect(await store.updates.list({ after: 0n, limit: 9, withRecords: false })).toHaveLength(1);
			expect(await store.assignOwner({ owner: "blue", of: { sender: "blue-server" }, limit: 9 })).toBe(0);
		});

		it("are assigned to conversations whose sender is not known: all, or those of given ids", async () => {
			await using store = await open();
			for (const n of [0, 1, 2, 3, 4])
				await send(
					store,
					{ by: "", conversation: n, kind: n === 1 ? "event" : "record", n },
					n === 3 ? POSTERS.operator : n === 4 ? POSTERS.blue : undefined,
				);
			const assign = (withoutSender: "all" | readonly string[]) =>
				store.assignOwner({ owner: "red", of: { withoutSender }, limit: 9 });
			expect(await store.countWithoutSender()).toBe(3);
			expect(await assign([0, 3, 4, 9].map(id))).toBe(1);
			expect(await store.countWithoutSender()).toBe(2);
			expect(await assign("all")).toBe(2);
			expect(await store.countWithoutSender()).toBe(0);
			expect(await Promise.all([0, 1, 2, 3, 4].map((n) => store.getOwnership(id(n))))).toEqual([
				{ sender: undefined, owner: "red" },
				{ sender: undefined, owner: "red" },
				{ sender: undefined, owner: "red" },
				POSTERS.operator,
				POSTERS.blue,
			]);
		});

		it("are assigned to conversations without an owner, of a sender or all, and to given ids", async () => {
			await using store = await open();
			const ids = [0, 1, 2, 3, 4].map(id);
			const keys = ["operator", "operator", "operator", "operator", "blue"];
			for (const [n, by] of keys.entries())
				await send(store, { by, conversation: n, kind: n === 1 ? "event" : "record", n });
			const owners = () => Promise.all(ids.map(async (one) => (await store.getOwnership(one))?.owner));
			const sender = { sender: "operator" };
			expect(await store.assignOwner({ owner: "red", of: { sender: "nobody" }, limit: 10 })).toBe(0);
			expect(await store.assignOwner({ owner: "red", of: sender, limit: 1 })).toBe(1);
			const given = { ids: [id(3), id(4), id(9)] };
			expect(await store.assignOwner({ owner: "green", of: given, limit: 10 })).toBe(2);
			expect((await owners()).slice(3)).toEqual(["green", "green"]);
			expect(await store.assignOwner({ owner: "red", of: sender, limit: 10 })).toBe(2);
			expect(await store.assignOwner({ owner: "blue", of: "all without an owner", limit: 10 })).toBe(0);
			expect(await owners()).toEqual(["red", "red", "red", "green", "green"]);
			const listed = await visibleStore(store, "green").listConversations({
				conditions: [],
				limit: 9,
				withRecords: false,
			});
			expect(listed.map(({ conversationId }) => conversationId)).toEqual([id(4), id(3)]);
			const events = await visibleStore(store, "red").events.list({ after: 0n, limit: 9 });
			expect(events.map(({ conversationId }) => conversationId)).toEqual([id(1)]);
		});
	});
}
