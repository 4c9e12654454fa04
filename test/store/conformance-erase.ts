import { fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { Condition } from "../../src/store/condition.ts";
import { idDigest } from "../../src/store/erasure.ts";
import type { Poster } from "../../src/store/owners.ts";
import type { RefusedPostRow } from "../../src/store/refused-posts.ts";
import type { Store } from "../../src/store/store.ts";
import type { UsageGroup } from "../../src/store/usage-report.ts";
import type { StoredRecord, Unreadable } from "../../src/store/values.ts";
import { refusedPost } from "./conformance-refused-posts.ts";
import { appendEvents, batch, event, record as recordOf } from "./event-samples.ts";
import { append, type Columns, sample, second, start } from "./samples.ts";

const id = (n: number) => `00000000-0000-4000-8000-00000000000${n}`;
const ERASED = id(0);

/** A post of a record, or of an event. */
interface Post {
	readonly conversation: number;
	readonly kind: "record" | "event";
	readonly relation: "parent" | "source" | "none";
	readonly of: number;
	readonly n: number;
}

/** A conversation stays a child, or a fork, of the same one in all of its records. */
const relations = fc.array(
	fc.record({
		relation: fc.constantFrom("parent" as const, "source" as const, "none" as const),
		of: fc.nat(3),
	}),
	{ minLength: 4, maxLength: 4 },
);

const posts = fc
	.tuple(
		relations,
		fc.array(
			fc.record({
				conversation: fc.nat(3),
				kind: fc.constantFrom("record" as const, "record" as const, "event" as const),
			}),
			{ minLength: 1, maxLength: 20 },
		),
	)
	.map(([related, list]) =>
		list.map((post, n): Post => ({ relation: "none", of: 0, ...related[post.conversation], ...post, n })),
	);

const POSTER: Poster = { sender: "server", owner: "red" };

function columnsOf({ n }: Post, receivedAt: bigint): Partial<Columns> {
	return { updatedAt: receivedAt, title: `title ${n}`, tags: { team: `t${n % 2}` }, cost: n };
}

async function send(store: Store, post: Post): Promise<void> {
	const { conversation, kind, relation, of, n } = post;
	const receivedAt = start + BigInt(n) * second;
	if (kind === "event") {
		const one = event({ eventId: `event ${n}`, happenedAt: receivedAt, text: Buffer.from(`{"id":"event ${n}"}`) });
		await appendEvents(store, batch(id(conversation), [one], { receivedAt, poster: POSTER }));
		return;
	}
	const accumulatedTokenUsage = { promptTokens: BigInt(n) };
	const stats = { usageToMetrics: { agent: { modelName: "m", accumulatedTokenUsage } } };
	const members = {
		stats,
		title: `record ${n}`,
		...(relation === "parent" ? { parentConversationId: id(of) } : {}),
		...(relation === "source" ? { forkedFromConversationId: id(of), forkedFromEventId: `event of ${of}` } : {}),
	};
	const update = sample({
		...{ conversationId: id(conversation), receivedAt, record: recordOf(members) },
		columns: { ...columnsOf(post, receivedAt), parentId: relation === "parent" ? id(of) : undefined },
	});
	const fork = relation === "source" ? { forkedFromConversationId: id(of) } : {};
	const summary = Buffer.concat([update.summary, encodeFork(fork)]);
	await append(store, { ...update, summary, poster: POSTER });
}

/** The members of a record that name other conversations. */
interface Related {
	readonly parentConversationId?: string;
	readonly forkedFromConversationId?: string;
	readonly forkedFromEventId?: string;
	readonly subConversationIds?: string[];
}

/** Returns an update whose record and summary name other conversations. */
function relatedSample(n: number, members: Related) {
	const { parentConversationId: parentId, forkedFromConversationId } = members;
	const update = sample({
		...{ conversationId: id(n), receivedAt: start, record: recordOf(members) },
		columns: { updatedAt: start, parentId },
	});
	const fork = encodeFork(forkedFromConversationId === undefined ? {} : { forkedFromConversationId });
	return { ...update, summary: Buffer.concat([update.summary, fork]) };
}

function encodeFork({ forkedFromConversationId }: { readonly forkedFromConversationId?: string }): Uint8Array {
	if (forkedFromConversationId === undefined) return new Uint8Array();
	const { number } = ConversationSummarySchema.field.forkedFromConversationId;
	const value = Buffer.from(forkedFromConversationId);
	return Buffer.concat([
		Buffer.from([(((number << 3) | 2) & 0x7f) | 0x80, (number << 3) >> 7, value.byteLength]),
		value,
	]);
}

function decoded(record: StoredRecord | Unreadable | undefined) {
	if (record === undefined || "unreadable" in record) throw new Error("the record cannot be read");
	return fromBinary(ConversationInfoSchema, record.bytes);
}

/** Returns what a store holds, without the numbers of sequences and versions. */
async function held(store: Store, groups: readonly UsageGroup[]) {
	const updates = await store.updates.list({ after: 0n, limit: 100, withRecords: true });
	const events = await store.events.list({ after: 0n, limit: 100 });
	const listed = await store.listConversations({ conditions: [], limit: 100, withRecords: true });
	const relation = async (field: "parentConversationId" | "forkedFromConversationId", n: number) => {
		const conditions = [{ kind: "equal" as const, field, value: id(n) }];
		const found = await store.listConversations({ conditions, limit: 100, withRecords: false });
		return found.map(({ conversationId }) => conversationId);
	};
	const titled = await store.listConversations({
		conditions: [{ kind: "title", contains: "title" }],
		limit: 100,
		withRecords: false,
	});
	const report = await store.reportUsage({
		periods: [{ first: 0n, beyond: 2n ** 40n }],
		groups,
		conditions: [],
		top: 0,
		limit: 100,
	});
	return {
		updates: updates.flatMap(({ conversationId, receivedAt, sender, owner, change, current, summary, record }) =>
			change === UpdateChange.ERASED
				? []
				: [
						{
							...{ conversationId, receivedAt, sender, owner, change, current, record: decoded(record) },
							summary: fromBinary(ConversationSummarySchema, summary),
						},
					],
		),
		events: events.map(({ conversationId, event: stored }) => ({
			conversationId,
			text: "unreadable" in stored ? undefined : Buffer.from(stored.text).toString(),
		})),
		listed: listed.map(({ conversationId, summary, record }) => ({
			conversationId,
			// One that has events only has no record.
			record: record && decoded(record),
			summary: fromBinary(ConversationSummarySchema, summary),
		})),
		titled: titled.map(({ conversationId }) => conversationId),
		children: await Promise.all([0, 1, 2, 3].map((n) => relation("parentConversationId", n))),
		forks: await Promise.all([0, 1, 2, 3].map((n) => relation("forkedFromConversationId", n))),
		usage: report.rows.filter(({ group }) => group[0] !== "").map(({ group, amounts }) => ({ group, amounts })),
		counts: await store.countConversations({ conditions: [], group: { by: "tag", key: "team" }, limit: 10 }),
	};
}

/**
 * @param open opens an empty store
 * @param reportsRoots whether the engine groups usage by the root of conversations
 */
export function eraseConformance(open: () => Promise<Store>, reportsRoots: boolean, factor: number): void {
	const byConversation = reportsRoots ? (["conversation", "root"] as const) : (["conversation"] as const);
	const groups = byConversation.map((kind) => ({ kind }));
	describe("erase", () => {
		it("leaves what a store holds that never had the conversation", async () => {
			await fc.assert(
				fc.asyncProperty(posts, async (list) => {
					await using store = await open();
					await using without = await open();
					for (const post of list) await send(store, post);
					for (const post of list)
						if (post.conversation !== 0) await send(without, post.of === 0 ? { ...post, relation: "none" } : post);
					const existed = list.some(({ conversation }) => conversation === 0);
					const erased = await store.erase({ conversationId: ERASED, owner: undefined, erasedAt: start });
					expect(erased === undefined).toBe(!existed);
					if (!existed) return;
					// A fork keeps what it was booked: it has not spent what it took over from the erased one.
					const forks = list.filter(({ relation, of }) => relation === "source" && of === 0);
					const isFork = (conversationId: string) =>
						forks.some(({ conversation }) => id(conversation) === conversationId);
					const compared = async (of: Store) => {
						const { usage, ...others } = await held(of, groups);
						return { ...others, usage: usage.filter(({ group: [conversationId = ""] }) => !isFork(conversationId)) };
					};
					expect(await compared(store)).toEqual(await compared(without));
					// So does a reset of the view.
					const { usage } = await held(store, groups);
					await store.resetViews(["usage"]);
					expect((await held(store, groups)).usage).toEqual(usage);
				}),
				{ numRuns: 3 * factor, endOnFailure: true },
			);
		});

		it("is an update in place of the id, in the log of all, of the conversation and of the owner", async () => {
			await using store = await open();
			const conversationId = ERASED;
			await append(store, { ...sample({ conversationId, receivedAt: start }), poster: POSTER });
			await append(store, { ...sample({ conversationId: id(1), receivedAt: start }), poster: POSTER });
			await appendEvents(store, batch(conversationId, [event()], { poster: POSTER }));
			const before = await store.events.range();
			const erased = await store.erase({ conversationId, owner: "red", erasedAt: start + second });
			const update = {
				...{ conversationId: idDigest(conversationId), sequence: 3n, receivedAt: start + second, owner: "red" },
				...{ change: UpdateChange.ERASED, current: false, origin: UpdateOrigin.UNSPECIFIED },
				...{ previousSequence: undefined, sender: undefined, summary: new Uint8Array(), record: undefined },
			};
			const erasure = {
				...{ idDigest: idDigest(conversationId), sequence: 3n, owner: "red" },
				...{ createdAt: start, erasedAt: start + second },
			};
			expect(erased).toEqual({ erasure });
			const list = (query: object) => store.updates.list({ after: 0n, limit: 10, withRecords: true, ...query });
			expect((await list({})).slice(1)).toEqual([update]);
			expect(await list({ after: 2n })).toEqual([update]);
			expect(await list({ conversationId })).toEqual([update]);
			expect((await list({ owner: "red" })).slice(1)).toEqual([update]);
			expect(await list({ owner: "blue" })).toEqual([]);
			expect(await list({ conversationId: id(1), after: 2n })).toEqual([]);
			expect((await list({ limit: 1 })).map(({ sequence }) => sequence)).toEqual([2n]);
			// The sequences of what was erased are not used again, and nothing counts as pruned.
			expect(await store.events.range()).toEqual(before);
			expect(await store.updates.range()).toEqual({ newest: 3n, prunedThrough: 0n, lastRemoval: 0n });
			const { newest } = (await appendEvents(store, batch(id(1), [event()], { poster: POSTER }))) ?? { newest: 0n };
			expect(newest).toBe(2n);
		});

		it("lets later posts succeed without storing them, until a record has a later created_at", async () => {
			await using store = await open();
			const post = (createdAt: bigint | undefined, poster = POSTER) =>
				append(store, {
					...sample({ conversationId: ERASED, receivedAt: start + second, columns: { createdAt } }),
					poster,
				});
			await post(start);
			const erased = await store.erase({ conversationId: ERASED, owner: undefined, erasedAt: start + second });
			const nothing = { sequence: 2n, duplicate: true, change: UpdateChange.ERASED, current: false };
			for (const createdAt of [start, start - 1n, undefined])
				expect(await post(createdAt)).toEqual({ ...nothing, hasUnappliedEvents: false });
			const events = batch(ERASED, [event()], { poster: POSTER });
			expect(await appendEvents(store, events)).toEqual({ stored: 0, newest: 0n, updateSequence: undefined });
			await expect(post(start + 1n, { sender: "blue", owner: "blue" })).rejects.toMatchObject({
				kind: "permission_denied",
			});
			expect(await store.getOwnership(ERASED)).toBeUndefined();
			expect(await store.getErasure(ERASED)).toEqual(erased?.erasure);
			expect(await store.get(ERASED)).toBeUndefined();
			expect(await post(start + 1n)).toMatchObject({ sequence: 3n, duplicate: false, change: UpdateChange.STARTED });
			expect(await appendEvents(store, events)).toMatchObject({ stored: 1 });
			expect(await store.getErasure(ERASED)).toBeUndefined();
			// A second erasure takes the place of the first.
			await store.erase({ conversationId: ERASED, owner: undefined, erasedAt: start + second });
			const updates = await store.updates.list({ after: 0n, limit: 10, withRecords: false });
			expect(updates.map(({ sequence, change }) => [sequence, change])).toEqual([[4n, UpdateChange.ERASED]]);
			expect(await post(start + 1n)).toMatchObject({ change: UpdateChange.ERASED });
		});

		it("keeps a record away whose created_at comes from a clock that is ahead", async () => {
			await using store = await open();
			const post = (createdAt: bigint) =>
				append(store, sample({ conversationId: ERASED, receivedAt: start, columns: { createdAt } }));
			const ahead = start + 3_600n * second;
			await post(ahead);
			const erased = await store.erase({ conversationId: ERASED, owner: undefined, erasedAt: start + second });
			expect(erased?.erasure?.createdAt).toBe(ahead);
			expect(await post(ahead)).toMatchObject({ duplicate: true, change: UpdateChange.ERASED });
			expect(await post(ahead + 1n)).toMatchObject({ duplicate: false, change: UpdateChange.STARTED });
		});

		it("only erases a conversation of the owner, and one without a record too", async () => {
			await using store = await open();
			await appendEvents(store, batch(ERASED, [event()], { poster: POSTER }));
			const erase = (owner: string | undefined) =>
				store.erase({ conversationId: ERASED, owner, erasedAt: start + second });
			expect(await erase("blue")).toBeUndefined();
			expect(await erase("red")).toMatchObject({ erasure: { sequence: 1n, createdAt: start + second } });
			expect(await erase("red")).toBeUndefined();
			expect(await store.events.list({ after: 0n, limit: 10 })).toEqual([]);
		});

		it("is no child any more in the records of a parent that its own record did not name", async () => {
			await using store = await open();
			const children = (of: string) => ({ subConversationIds: [of, id(2)] });
			for (const update of [
				relatedSample(3, children(ERASED)),
				relatedSample(0, {}),
				relatedSample(3, children(id(1))),
			])
				await append(store, { ...update, poster: POSTER });
			const request = { conversationId: ERASED, owner: undefined, erasedAt: start };
			expect(await store.erase(request)).toMatchObject({ erasure: { sequence: expect.any(BigInt) } });
			const history = await store.updates.list({ after: 0n, limit: 10, conversationId: id(3), withRecords: true });
			const named = history.map(({ record }) => decoded(record).subConversationIds);
			expect(named).toEqual([[id(2)], [id(1), id(2)]]);
		});

		it("leaves the relatives of another owner as they are", async () => {
			await using store = await open();
			const related = [
				relatedSample(1, { parentConversationId: ERASED }),
				relatedSample(2, { forkedFromConversationId: ERASED, forkedFromEventId: "e" }),
				relatedSample(3, { subConversationIds: [ERASED] }),
			];
			const post = (update: (typeof related)[number], owner: string) =>
				append(store, { ...update, poster: { sender: owner, owner } });
			for (const update of related) await post(update, "red");
			await post(relatedSample(0, { parentConversationId: id(3) }), "blue");
			const seen = async () => ({
				stored: await Promise.all(related.map(({ conversationId }) => store.get(conversationId))),
				listed: await store.listConversations({
					conditions: [{ kind: "equal", field: "owner", value: "red" }],
					...{ limit: 10, withRecords: true },
				}),
			});
			const before = await seen();
			const request = { conversationId: ERASED, owner: "blue", erasedAt: start };
			expect(await store.erase(request)).toMatchObject({ erasure: { owner: "blue" } });
			expect(await seen()).toEqual(before);
		});

		it("erases the refused posts of the owner only, which keep nobody out and make no owner", async () => {
			await using store = await open();
			const keep = (post: RefusedPostRow) => store.keepRefusedPost({ post, maxBytes: 2 ** 20 });
			const of = (owner: string | undefined, seconds: number, accepted: boolean) =>
				refusedPost(seconds, { owner, conversationId: ERASED, accepted });
			const [red, blue, none] = [of("red", 1, true), of("blue", 2, true), of(undefined, 3, true)];
			for (const one of [red, blue, none]) expect(await keep(one)).toBe(0);
			for (const one of [of("red", 4, false), of("blue", 5, false)]) await keep(one);
			const kept = async () => ({
				posts: (await store.listRefusedPosts({ limit: 10 })).map(({ owner, accepted }) => [owner, accepted]),
				gaps: (await store.listGaps(ERASED)).map(({ missing }) => missing).toSorted(),
			});
			const erase = (owner: string | undefined) => store.erase({ conversationId: ERASED, owner, erasedAt: start });
			expect(await erase("green")).toBeUndefined();
			expect(await erase("blue")).toEqual({ erasure: undefined });
			expect(await erase("blue")).toBeUndefined();
			expect(await kept()).toEqual({
				posts: [
					["red", false],
					[undefined, true],
					["red", true],
				],
				gaps: [String(red.id), String(none.id)].toSorted(),
			});
			expect(await store.getErasure(ERASED)).toBeUndefined();
			expect((await store.updates.range()).newest).toBe(0n);
			// The first record makes the owner. Only batches of senders that may post to the conversation are missing.
			expect(await keep(blue)).toBe(0);
			await append(store, { ...sample({ conversationId: ERASED, receivedAt: start }), poster: POSTER });
			expect((await kept()).gaps).toEqual([String(red.id), String(none.id)].toSorted());
			const [listed] = await store.listConversations({ conditions: [], limit: 1, withRecords: false });
			expect(fromBinary(ConversationSummarySchema, listed?.summary ?? new Uint8Array()).gaps?.count).toBe(2n);
			expect(await keep(of("blue", 6, true))).toBeUndefined();
			expect(await erase("blue")).toEqual({ erasure: undefined });
			expect(await store.get(ERASED)).toMatchObject({ owner: "red" });
			expect(await erase("red")).toMatchObject({ erasure: { owner: "red" } });
			expect((await kept()).posts).toEqual([[undefined, true]]);
			// Refused posts of an erased conversation are not stored, but for those that are no part of it.
			for (const one of [of("red", 7, false), of("blue", 8, false)]) await keep(one);
			expect(await keep(of("blue", 9, true))).toBeUndefined();
			expect(await keep(of("red", 9, true))).toBe(0);
			expect(await kept()).toEqual({
				posts: [
					["blue", false],
					[undefined, true],
				],
				gaps: [],
			});
			expect(await erase(undefined)).toEqual({ erasure: undefined });
			expect((await kept()).posts).toEqual([]);
		});

		it("only erases a conversation that meets the conditions", async () => {
			await using store = await open();
			for (const conversationId of [ERASED, id(1)]) {
				const update = sample({ conversationId, receivedAt: start, columns: { updatedAt: start } });
				await append(store, { ...update, poster: POSTER });
			}
			const eraseInactive = (to: bigint) =>
				store.erase({
					...{ conversationId: ERASED, owner: "red", erasedAt: start + second },
					conditions: [{ kind: "time", field: "activityAt", to }],
				});
			expect(await eraseInactive(start - 1n)).toBeUndefined();
			expect(await store.get(ERASED)).toMatchObject({ sequence: 1n });
			expect(await eraseInactive(start + second)).toMatchObject({ erasure: { sequence: 3n } });
			expect(await store.get(ERASED)).toBeUndefined();
			expect(await store.get(id(1))).toMatchObject({ sequence: 2n });
		});

		it("is refused while a parent, a child or a fork cannot be read, and names the update", async () => {
			const damaged = Buffer.from([0xff]);
			const fork = sample({ conversationId: id(3), record: damaged });
			const relatives = {
				parent: sample({ conversationId: id(1), record: damaged }),
				child: sample({ conversationId: id(2), record: damaged, columns: { parentId: ERASED } }),
				fork: { ...fork, summary: Buffer.concat([fork.summary, encodeFork({ forkedFromConversationId: ERASED })]) },
			};
			for (const [name, relative] of Object.entries(relatives)) {
				await using store = await open();
				const columns = name === "parent" ? { parentId: id(1) } : {};
				await append(store, sample({ conversationId: ERASED, record: recordOf({}), columns }));
				await append(store, relative);
				const erase = (conversationId: string) =>
					store.erase({ conversationId, owner: undefined, erasedAt: start + second });
				await expect(erase(ERASED)).rejects.toMatchObject({
					kind: "data_loss",
					message: `Update 2 of conversation ${relative.conversationId} is damaged; erase that conversation first`,
				});
				expect(await store.get(ERASED)).toMatchObject({ sequence: 1n });
				await erase(relative.conversationId);
				expect(await erase(ERASED)).toMatchObject({ erasure: { owner: undefined } });
			}
		});

		it("keeps sums of usage without the conversation", async () => {
			await using store = await open();
			const post: Post = { conversation: 0, kind: "record", relation: "none", of: 0, n: 7 };
			await send(store, post);
			await send(store, { ...post, conversation: 1, n: 5 });
			const report = (
				groups: readonly { readonly kind: "model" | "conversation" | "root" }[],
				...conditions: readonly Condition[]
			) => store.reportUsage({ periods: [{ first: 0n, beyond: 2n ** 40n }], groups, conditions, top: 0, limit: 100 });
			const of = (field: "sender" | "owner" | "model", value: string) => ({ kind: "equal", field, value }) as const;
			const byModel = await report([{ kind: "model" }]);
			await store.erase({ conversationId: ERASED, owner: undefined, erasedAt: start });
			expect(await report([{ kind: "model" }])).toEqual(byModel);
			// Usage has a sender and an owner, also that of a conversation without a record.
			expect(await report([{ kind: "model" }], of("sender", "server"), of("owner", "red"))).toEqual(byModel);
			expect(await report([{ kind: "model" }], of("sender", "other"))).toEqual({ rows: [], conversations: 0 });
			const present = await report([{ kind: "model" }], of("owner", "red"), of("model", "model-a"));
			expect(present.rows.map(({ amounts, conversations }) => [amounts.promptTokens, conversations])).toEqual([
				[5n, 1],
			]);
			for (const kind of byConversation)
				expect((await report([{ kind }])).rows.map(({ group, amounts }) => [group[0], amounts.promptTokens])).toEqual(
					expect.arrayContaining([
						["", 7n],
						[id(1), 5n],
					]),
				);
		});
	});
}
