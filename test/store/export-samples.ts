import { expect } from "vitest";
import type { EndpointRow } from "../../src/store/forwarding.ts";
import type { Store } from "../../src/store/store.ts";
import { Random } from "../support/random.ts";
import { accessKey } from "./conformance-access-keys.ts";
import { auditEntry } from "./conformance-audit.ts";
import { refusedPost } from "./conformance-refused-posts.ts";
import { appendEvents, batch, effect, event, record, stateUpdate } from "./event-samples.ts";
import { at } from "./event-steps.ts";
import { append, conditions, type Filter, sample, start, whenFollowed } from "./samples.ts";

/** Ids of conversations, named by their contents. The one that is `deleted` is pruned as a whole. */
export const ids = Array.from({ length: 8 }, (_, n) => `${n.toString(16).repeat(8)}-0000-4000-8000-00000000000${n}`);
export const [posted = "", reported = "", eventsOnly = "", deleted = "", unapplied = "", ...others] = ids;
/** An id with more UTF-16 code units than the PostgreSQL engine keeps whole in an index. */
export const LONG_ID = "\u{1F600}".repeat(200);
const large = (of: string) => Buffer.from(`${of} `.repeat(9_000));

/** Returns the stats after some calls of a model. */
function usage(model: string, calls: number) {
	const costs = Array.from({ length: calls }, (_, n) => ({ model, cost: 0.25, timestamp: 1_700_000_000 + n * 900 }));
	const tokenUsages = [{ model, promptTokens: 7n, responseId: "response\u0000" }];
	return { usageToMetrics: { agent: { modelName: model, accumulatedCost: 0.25 * calls, costs, tokenUsages } } };
}

/** Stores data of every kind that an export has, and prunes part of it. */
export async function fill(store: Store): Promise<void> {
	const random = Random.ofTest();
	const titles = ["Fix the LOGIN page", "a\u0000b", "", undefined, "50% _ \\"];
	await appendEvents(store, batch(deleted, [event({ message: "gone" })]));
	for (const status of ["running", "deleting"]) {
		const of = record({ id: deleted, title: status, stats: usage("gone", 2) });
		await append(store, sample({ conversationId: deleted, receivedAt: at(1), record: of, columns: { status } }));
	}
	for (let n = 10; n < 50; n++)
		await append(
			store,
			sample({
				conversationId: random.pick([posted, reported, ...others]) ?? posted,
				receivedAt: at(n),
				record: n % 7 === 0 ? large(`${n}`) : record({ id: `${n}`, tags: { padding: "x".repeat(n * 40) } }),
				columns: {
					status: random.pick(["idle", "running", "paused"]) ?? "idle",
					title: random.pick(titles),
					model: random.pick(["model-a", "m".repeat(400)]) ?? "model-a",
					parentId: random.pick([undefined, posted]),
					createdAt: random.pick([undefined, start]),
					updatedAt: random.pick([undefined, at(random.integer(10, 50))]),
					tags: random.pick([{}, { team: "a\u0001", ["k".repeat(300)]: "v" }, { team: "b" }]) ?? {},
				},
			}),
		);
	// Versions that events make, stored as deltas over a whole record, and events with leaves and messages.
	await append(
		store,
		sample({
			conversationId: reported,
			receivedAt: at(50),
			record: record({
				id: reported,
				tags: { padding: "y".repeat(4_000) },
				subConversationIds: [posted],
				leafEventId: "posted",
				stats: usage("a\u0000", 3),
			}),
			columns: { updatedAt: at(50) },
		}),
	);
	for (let n = 0; n < 5; n++) {
		const { revision } = await store.getRecordState(reported, []);
		const said = event({
			eventId: `said-${n}`,
			happenedAt: at(60 + n),
			message: `said ${n}`,
			llmResponseId: n % 2 === 0 ? undefined : `response-\u0000-${n}`,
			secrets: ["/a", "/b"],
		});
		const state = { ...effect(revision, `title ${n}`), next: 2n ** 61n + BigInt(n) };
		const events = [said, stateUpdate({ happenedAt: at(60 + n) })];
		expect(await appendEvents(store, batch(reported, events, { effect: state }))).toMatchObject({ stored: 2 });
	}
	const erased = "77777777-0000-4000-8000-000000000007";
	await append(store, sample({ conversationId: erased, receivedAt: at(70) }));
	await appendEvents(store, batch(erased, [event()], { poster: { sender: "s", owner: undefined } }));
	await store.erase({ conversationId: erased, owner: undefined, erasedAt: at(71) });
	// Usage of a conversation that stays, and of one that is removed below.
	for (const calls of [1, 2]) {
		const of = { conversationId: unapplied, receivedAt: at(700 + calls) };
		const members = { forkedFromConversationId: reported, stats: usage("m".repeat(300), calls) };
		await append(store, sample({ ...of, record: record({ id: unapplied, ...members }) }));
	}
	const long = { id: LONG_ID, note: "a\u0000".repeat(20_000) };
	const texts = [long, { id: "plain" }].map((json) => ({ eventId: json.id, text: Buffer.from(JSON.stringify(json)) }));
	await appendEvents(store, batch(eventsOnly, texts.map(event)));
	await appendEvents(store, batch(unapplied, [stateUpdate({ happenedAt: at(900) })]));
	const columns = {
		status: "idle",
		title: "Fix the LOGIN page of a\u0000b",
		model: "m".repeat(400),
		parentId: posted,
		createdAt: at(5),
		updatedAt: at(800),
		tags: { team: "b" },
	};
	await append(store, sample({ conversationId: unapplied, receivedAt: at(800), columns }));
	const lost = ["lost \u0000", LONG_ID].map((parentId) => event({ parentId }));
	await appendEvents(store, batch(posted, lost, { receivedAt: at(900) }));
	const owners = [
		[eventsOnly, undefined],
		["99999999-0000-4000-8000-000000000009", "team-a"],
	] as const;
	for (const [id, owner] of owners)
		await appendEvents(store, {
			...batch(id, [event({ message: `of ${owner}` })], { receivedAt: at(900) }),
			poster: { sender: "spiffe://corp/agent", owner },
		});
	const ofOwner = sample({ conversationId: "88888888-0000-4000-8000-000000000008", receivedAt: at(900) });
	await append(store, { ...ofOwner, poster: { sender: "spiffe://corp/agent", owner: "team-b" } });

	// Prunes a whole conversation, then updates, then events.
	expect(await store.prune({ receivedBefore: at(2), limit: 1_000 })).toBeGreaterThan(2);
	expect(await store.prune({ updatesPerConversation: 4, limit: 3 })).toBe(3);
	expect(await store.pruneEvents(start + 1n, 2)).toBe(2);
	for (const name of ["B", "a"]) await store.createAccessKey(accessKey(name));
	await store.createAccessKey(accessKey("c", { owner: "", expiresAt: undefined }));
	await store.revokeAccessKey({ name: "a", at: at(1_001) });
	for (const n of [1n, 2n]) await store.tables.write.addAudit(auditEntry(n));
	await store.touchAccessKeys([{ name: "B", at: at(1_002) }]);
	const { write } = store.tables;
	for (const id of ["e2", "e1"]) await write.createEndpoint({ ...ENDPOINT, id, name: `hook ${id}` });
	const scored = {
		name: "tests",
		giver: "job",
		source: "program",
		kind: "number",
		value: 0.1 + 0.2,
		category: undefined,
	};
	for (const scores of [
		[{ ...scored, conversationId: posted, eventId: "", comment: "a\u0000" }],
		[
			{
				...scored,
				...{ conversationId: posted, eventId: "", name: "kind", kind: "category" },
				value: undefined,
				category: "b\u0001",
				comment: "",
			},
		],
		[{ ...scored, conversationId: unapplied, eventId: "", value: 1, comment: "" }],
	])
		expect(await store.setScores({ scores, owner: undefined, audit: auditEntry(3n) })).toBe(1);
	await write.createBudget({
		...{ id: "b1", name: "all", owner: "", settings: Buffer.from([3]), updates: 4n, events: 5n },
		...{ createdAt: at(1_004), createdBy: "test" },
	});
	await write.addNotice({ id: "gap_1", conversationId: posted, deliveries: [], at: at(1_005) });
	for (const post of [
		refusedPost(1, { conversationId: posted, owner: "team-a", retriedAt: at(5) }),
		refusedPost(2, { accepted: true, body: undefined }),
		refusedPost(3, { conversationId: undefined }),
	])
		await store.keepRefusedPost({ post, maxBytes: 2 ** 20 });
}

const ENDPOINT: EndpointRow = {
	...{ id: "", name: "", owner: "", url: "https://receiver.example/", changes: ["FINISHED", "GAP"], form: "plain" },
	...{
		include: ["record"],
		filter: Buffer.from([10, 0]),
		secrets: Buffer.from("sealed"),
		state: "disabled",
		reason: "410",
	},
	...{ position: 2n, failures: 1, failingSince: undefined, lastSuccessAt: at(9), lost: 1n },
	...{ createdAt: at(1_003), createdBy: "test" },
};

const filters: readonly Filter[] = [
	{},
	{ status: "idle" },
	{ model: "m".repeat(400) },
	{ parentId: posted },
	{ tagKey: "team" },
	{ tags: { team: "b" } },
	{ titleContains: "login" },
	{ titleContains: "a\u0000" },
	{ createdFrom: at(3) },
	{ updatedFrom: at(30) },
];

/** Returns the results of all reads of a store. */
export async function everything(store: Store) {
	const updates = await store.updates.list({ after: 0n, limit: 1_000, withRecords: true });
	const events = await store.events.list({ after: 0n, limit: 1_000 });
	const ranges = [{}, { afterRemoval: 1n }, ...ids.map((conversationId) => ({ conversationId }))];
	const eventIds = ["said-1", LONG_ID, "plain", "unknown"];
	return {
		updates,
		events,
		ranges: await Promise.all(ranges.flatMap((query) => [store.updates.range(query), store.events.range(query)])),
		states: await Promise.all(ids.map((id) => store.getRecordState(id, eventIds))),
		unapplied: await store.listUnapplied(10),
		asOf: await Promise.all(ids.flatMap((id) => updates.map(({ sequence }) => store.get(id, sequence)))),
		lists: await Promise.all(
			filters.map((filter) =>
				whenFollowed(() =>
					store.listConversations({ conditions: conditions(filter), limit: 1_000, withRecords: true }),
				),
			),
		),
		gaps: await Promise.all(ids.map(async (id) => new Set(await store.listGaps(id)))),
		accessKeys: (await store.listAccessKeys()).map((key) => ({ ...key, sha256: Buffer.from(key.sha256) })),
		endpoints: (await store.tables.read.listEndpoints({ owner: undefined })).map((one) => ({
			...one,
			...{ filter: Buffer.from(one.filter), secrets: Buffer.from(one.secrets) },
		})),
		budgets: (await store.tables.read.listBudgets({ owner: undefined })).map((one) => ({
			...one,
			settings: Buffer.from(one.settings),
		})),
		hasNotice: await store.tables.read.hasNotice("gap_1"),
		audit: await store.tables.read.listAudit({ owner: undefined, before: undefined, limit: 10 }),
		refusedPosts: await store.listRefusedPosts({ limit: 10 }),
		bodyOfRefused: (await store.getRefusedPost({ id: refusedPost(1).id }))?.body?.length,
	};
}
