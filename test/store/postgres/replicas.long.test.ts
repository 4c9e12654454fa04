import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { WatchConversationUpdatesResponseSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange } from "../../../gen/conversations/v1/update_pb.js";
import { updateLog } from "../../../src/conversations/read/entry-log.ts";
import { SharedResponse } from "../../../src/conversations/watch/shared-response.ts";
import { Watches } from "../../../src/conversations/watch/watch.ts";
import { SENDER_GONE } from "../../../src/errors.ts";
import type { StoredUpdate } from "../../../src/store/entries.ts";
import type { Connections } from "../../../src/store/postgres/connections.ts";
import { CommitUnknown } from "../../../src/store/postgres/failures.ts";
import { openPostgresStore } from "../../../src/store/postgres/postgres.ts";
import type { Store } from "../../../src/store/store.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { appendEvents, batch, event } from "../event-samples.ts";
import { append, sample, start, stored } from "../samples.ts";
import { connect, Databases, openStore, sqlOn } from "./databases.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

/** Opens several stores of one new database, as replicas do. */
async function replicas(count: number, env: Readonly<Record<string, string>> = {}) {
	const url = await databases.createMigrated();
	const stores: Store[] = [];
	for (let n = 0; n < count; n++) stores.push(await openStore(url, { env }));
	onTestFinished(async () => {
		for (const store of stores) await store.close();
	});
	return { url, stores };
}

/** Delays each commit of an append by a number of seconds, which is an SQL expression. */
async function delayCommits(url: string, seconds: string): Promise<void> {
	await sqlOn(
		url,
		`CREATE FUNCTION conversation_updates.wait() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN PERFORM pg_sleep(${seconds}); RETURN NULL; END $$`,
	);
	await sqlOn(
		url,
		`CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON conversation_updates.state
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION conversation_updates.wait()`,
	);
}

test("a reader that follows the sequence misses no update when commits are delayed", async () => {
	const { url, stores } = await replicas(3);
	await delayCommits(url, "random() * 0.03");
	const follower = stores[2];
	if (follower === undefined) throw new Error("there are three stores");
	let writing = true;
	const seen: bigint[] = [];
	const follow = async () => {
		for (let isLast = false; !isLast; ) {
			isLast = !writing;
			const page = await follower.updates.list({ after: seen.at(-1) ?? 0n, limit: 100, withRecords: false });
			seen.push(...page.map(({ sequence }) => sequence));
		}
	};
	const write = async (store: Store) => {
		for (let n = 0; n < 15; n++) await Promise.all(Array.from({ length: 4 }, () => append(store, sample())));
	};
	const following = follow();
	// Several loops on each store, so that groups of both stores are committed at the same time.
	await Promise.all(stores.slice(0, 2).flatMap((store) => [write(store), write(store)]));
	writing = false;
	await following;
	const all = await follower.updates.list({ after: 0n, limit: 1_000, withRecords: false });
	expect(all).toHaveLength(240);
	expect(seen).toEqual(all.map(({ sequence }) => sequence));
});

test("concurrent updates of one conversation on two replicas follow the rules of order", async () => {
	const { stores } = await replicas(2);
	const ids = Array.from({ length: 4 }, () => randomUUID());
	const updates = Array.from({ length: 120 }, (_, n) =>
		sample({
			conversationId: ids[n % 4] ?? "",
			columns: { updatedAt: start + BigInt((n * 37) % 100), title: `title ${n}`, tags: { n: `${n}` } },
		}),
	);
	const outcomes = await Promise.all(
		updates.map((update, n) => append(stores[(n >> 2) % 2] ?? raise("there are two stores"), update)),
	);
	const [store] = stores;
	if (store === undefined) throw new Error("there are two stores");
	for (const conversationId of ids) {
		const history = await store.updates.list({ after: 0n, conversationId, limit: 1_000, withRecords: true });
		let current: StoredUpdate | undefined;
		let newestTime = 0n;
		for (const found of history) {
			const index = outcomes.findIndex(({ sequence }) => sequence === found.sequence);
			const update = updates[index] ?? raise("an update that nobody appended");
			const { updatedAt = 0n } = update.columns;
			const isCurrent = updatedAt >= newestTime;
			expect(found).toMatchObject({
				current: isCurrent,
				previousSequence: current?.sequence,
				change: current === undefined ? UpdateChange.STARTED : UpdateChange.UPDATED,
				record: { bytes: new Uint8Array(update.record.bytes) },
			});
			if (!isCurrent) continue;
			newestTime = updatedAt;
			current = found;
		}
		expect(history).toHaveLength(30);
		expect((await store.get(conversationId))?.sequence).toBe(current?.sequence);
	}
	const page = await store.listConversations({ conditions: [], limit: 10, withRecords: false });
	expect(page.map(({ conversationId }) => conversationId).toSorted()).toEqual(ids.toSorted());
});

test("duplicates that reach several replicas at once are stored once", async () => {
	const { stores } = await replicas(3);
	for (let round = 0; round < 10; round++) {
		const update = sample({ columns: { updatedAt: start } });
		const events = batch(update.conversationId, [event(), event()]);
		const outcomes = await Promise.all(stores.flatMap((store) => [append(store, update), append(store, update)]));
		expect(outcomes.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
		expect(new Set(outcomes.map(({ sequence }) => sequence))).toEqual(new Set([BigInt(round + 1)]));
		const added = await Promise.all(stores.map((store) => appendEvents(store, events)));
		expect(added.map((one) => one?.stored).toSorted()).toEqual([0, 0, 2]);
	}
});

test.each(["on", "off"])("each replica is notified of the others' appends, POSTGRES_NOTIFY=%s", async (notify) => {
	const { url, stores } = await replicas(2, { POSTGRES_NOTIFY: notify });
	const [one, other] = stores;
	if (one === undefined || other === undefined) throw new Error("there are two stores");
	const heard: { updates: bigint[]; events: bigint[] } = { updates: [], events: [] };
	other.updates.subscribe((newest) => heard.updates.push(newest));
	other.events.subscribe((newest) => heard.events.push(newest));
	const update = sample();
	const outcome = await append(one, update);
	await expect.poll(() => heard, { timeout: 30_000 }).toEqual({ updates: [1n], events: [] });
	expect(await other.get(update.conversationId)).toEqual(stored(update, outcome));
	// Any role that may connect can send this, so its numbers must not be trusted.
	await sqlOn(url, "SELECT pg_notify('conversation_updates', '9000000000000000000 9000000000000000000')");
	await appendEvents(one, batch(update.conversationId, [event(), event()]));
	await append(other, sample());
	await expect.poll(() => heard, { timeout: 30_000 }).toEqual({ updates: [1n, 2n], events: [2n] });
});

/** Removes the last updates of a database, as if a standby without the last commits had taken over. */
async function loseUpdatesAfter(url: string, sequence: bigint): Promise<void> {
	const lost = `(SELECT conversation_id FROM conversation_updates.updates WHERE sequence > ${sequence})`;
	await sqlOn(
		url,
		`BEGIN;
		DELETE FROM conversation_updates.conversations WHERE conversation_id IN ${lost};
		DELETE FROM conversation_updates.updates WHERE sequence > ${sequence};
		UPDATE conversation_updates.state SET newest_update = ${sequence};
		COMMIT`,
	);
}

test("after a failover, watchers that got lost updates fail, and the others continue without them", async () => {
	const lines: string[] = [];
	const url = await databases.createMigrated();
	const log = { error: ({ err }: { err?: unknown }) => lines.push(String(err)) };
	const store = await openStore(url, { log });
	onTestFinished(() => store.close());
	const { watch } = watching(store);
	const [ahead, behind] = [watch(), watch()];
	for (const watcher of [ahead, behind]) expect(await watcher.through(0n)).toEqual([]);
	for (let n = 0; n < 5; n++) await append(store, sample());
	expect((await ahead.through(5n)).length).toBe(5);
	await loseUpdatesAfter(url, 3n);
	await expect(ahead.through(6n)).rejects.toThrow(
		"the database has lost the entries after sequence 3; start after sequence 3",
	);
	const update = sample();
	const appended = await append(store, update);
	expect(appended).toMatchObject({ sequence: 4n });
	const rest = await behind.through(4n);
	expect(rest.map(({ sequence }) => sequence)).toEqual([1n, 2n, 3n, 4n]);
	expect(rest.at(-1)).toEqual(stored(update, appended));
	expect(lines).toEqual([
		"ServiceError: the database has lost the entries after sequence 3; the newest sequence was 5",
	]);
});

test("when a conversation gets another owner, other replicas drop the entries that they have in memory", async () => {
	const { stores } = await replicas(2);
	const [assigning, following] = stores;
	if (assigning === undefined || following === undefined) throw new Error("there are two stores");
	const { watches, watch } = watching(following);
	const watcher = watch();
	expect(await watcher.through(0n)).toEqual([]);
	const update = sample();
	const { sequence } = await append(assigning, update);
	expect((await watcher.through(sequence)).map(({ owner }) => owner)).toEqual([undefined]);
	expect(watches.usage.entries).toBe(1);
	const { conversationId } = update;
	expect(await assigning.assignOwner({ owner: "red", of: { ids: [conversationId] }, limit: 10 })).toBe(1);
	await expect.poll(() => watches.usage.entries, { timeout: 30_000 }).toBe(0);
	const next = await append(assigning, { ...sample({ conversationId }), poster: { sender: "agent", owner: "red" } });
	expect((await watcher.through(next.sequence)).map(({ owner }) => owner)).toEqual(["red"]);
});

/** Returns watches of a store's updates. A watcher returns the entries through a sequence. */
function watching(store: Store) {
	const schema = WatchConversationUpdatesResponseSchema;
	const stopping = new AbortController();
	onTestFinished(() => stopping.abort());
	const messageAt = (sequence: bigint) => new SharedResponse(schema, sequence, () => create(schema, { sequence }));
	const options = { heartbeat: 2 ** 30, stopping: stopping.signal };
	const watches = new Watches<StoredUpdate, typeof schema>(updateLog(store), messageAt, options);
	function watch() {
		const entries = new Map<bigint, StoredUpdate>();
		const responder = () => (entry: StoredUpdate) => {
			entries.set(entry.sequence, entry);
			return messageAt(entry.sequence);
		};
		const request = { start: "beginning", conversationId: undefined, variant: [randomUUID()], responder } as const;
		const batches = watches.watch(request, stopping.signal);
		return {
			async through(last: bigint): Promise<StoredUpdate[]> {
				const received: StoredUpdate[] = [];
				for (let sequence = -1n; sequence < last; ) {
					const { value = [] } = await batches.next();
					for (const message of value) {
						({ sequence } = message);
						const entry = entries.get(sequence);
						if (entry !== undefined) received.push(entry);
					}
				}
				return received;
			},
		};
	}
	return { watches, watch };
}

/** Outcome of a COMMIT whose response is lost. */
type Loss = "committed" | "late" | "rolled back";

/** Wraps connections so that the responses to some commits are lost. */
function withLostResponses(connections: Connections, next: () => Loss | undefined): Connections {
	return {
		notifies: connections.notifies,
		read: (work) => connections.read(work),
		settle: (ids) => connections.settle(ids),
		transaction: (work, options) =>
			connections.transaction(
				(transaction) =>
					work({
						query: (...queries) => transaction.query(...queries),
						spread: transaction.spread,
						hasSnapshot: transaction.hasSnapshot,
						async commit(...queries) {
							const loss = next();
							if (loss === undefined) return await transaction.commit(...queries);
							if (loss === "committed") await transaction.commit(...queries);
							// The commit continues while the sender repeats.
							if (loss === "late") transaction.commit(...queries).catch(() => undefined);
							throw new CommitUnknown(new Error("the answer is lost"));
						},
					}),
				options,
			),
		listen: (listener) => connections.listen(listener),
		[Symbol.asyncDispose]: () => connections[Symbol.asyncDispose](),
	};
}

test.each<Loss>(["committed", "late", "rolled back"])(
	"appends that are repeated take effect once when the response to their COMMIT is lost: %s",
	async (loss) => {
		const url = await databases.createMigrated();
		await delayCommits(url, "0.1");
		const losses: Loss[] = [];
		const store = await openPostgresStore(
			withLostResponses(await connect(url), () => losses.shift()),
			{ error: () => undefined },
		);
		onTestFinished(() => store.close());
		const updates = Array.from({ length: 5 }, () => sample());
		const events = batch(randomUUID(), [event(), event()]);
		const post = () =>
			Promise.allSettled([...updates.map((update) => append(store, update)), appendEvents(store, events)]);
		losses.push(loss);
		const reason = { kind: "unavailable", message: "the database did not report whether the commit succeeded" };
		expect(await post()).toMatchObject(Array.from({ length: 6 }, () => ({ status: "rejected", reason })));
		expect(losses).toEqual([]);
		const isStored = loss !== "rolled back";
		expect(await post()).toMatchObject([
			...[1n, 2n, 3n, 4n, 5n].map((sequence) => ({ value: { sequence, duplicate: isStored, current: true } })),
			{ value: { stored: isStored ? 0 : 2, newest: isStored ? 0n : 2n } },
		]);
		const kept = await store.updates.list({ after: 0n, limit: 100, withRecords: false });
		expect(kept.map(({ conversationId }) => conversationId)).toEqual(
			updates.map(({ conversationId }) => conversationId),
		);
		expect(await store.events.list({ after: 0n, limit: 10 })).toHaveLength(2);
		expect(await append(store, sample())).toMatchObject({ sequence: 6n, duplicate: false });
	},
);

test("an update is stored once when the connection breaks while its COMMIT is under way and the sender repeats", async () => {
	const url = await databases.createMigrated();
	await delayCommits(url, "1");
	const { port } = databases.server;
	await using proxy = await TcpProxy.start(() => port);
	const store = await openStore(url.replace(`:${port}/`, `:${proxy.port}/`), { env: { POSTGRES_NOTIFY: "off" } });
	onTestFinished(() => store.close());
	const update = sample();
	const first = append(store, update).catch((error: unknown) => error);
	const committing = () => sqlOn(url, "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
	await expect.poll(committing, { timeout: 30_000 }).toHaveLength(1);
	proxy.cut(true);
	expect(await first).toMatchObject({ kind: "unavailable" });
	expect(await append(store, update)).toMatchObject({ sequence: 1n, duplicate: true });
	expect(await store.updates.list({ after: 0n, limit: 10, withRecords: false })).toHaveLength(1);
});

test("a request that waited for the outcome of a group is not written when its sender may have given up", async () => {
	const url = await databases.createMigrated();
	vi.useFakeTimers({ toFake: ["performance"] });
	onTestFinished(() => void vi.useRealTimers());
	const losses: Loss[] = [];
	const { conversationId } = sample();
	const appends: Promise<unknown>[] = [];
	const next = () => {
		const loss = losses.shift();
		if (loss === undefined) return undefined;
		// It waits for the group in doubt, because a conversation is in one group at a time.
		appends.push(append(store, sample({ conversationId })));
		vi.advanceTimersByTime(20_001);
		return loss;
	};
	const store = await openPostgresStore(withLostResponses(await connect(url), next), { error: () => undefined });
	onTestFinished(() => store.close());
	losses.push("rolled back");
	appends.push(append(store, sample({ conversationId })));
	await Promise.allSettled(appends);
	expect(await Promise.allSettled(appends)).toMatchObject([
		{ status: "rejected", reason: { kind: "unavailable" } },
		{ status: "rejected", reason: { kind: "unavailable", message: "the request could not be stored in time" } },
	]);
	expect(await append(store, sample())).toMatchObject({ sequence: 1n });
});

/** Wraps connections so that each transaction for which `breaks` returns true loses its connection before it does anything. */
function withBreaks(connections: Connections, breaks: () => boolean): Connections {
	return {
		...withLostResponses(connections, () => undefined),
		transaction: (work, options) =>
			connections.transaction(async (transaction) => {
				if (breaks()) await transaction.query({ text: "SELECT pg_terminate_backend(pg_backend_pid())" });
				return await work(transaction);
			}, options),
	};
}

test("a group is not retried after its connection broke when its senders may have given up", async () => {
	const url = await databases.createMigrated();
	vi.useFakeTimers({ toFake: ["performance"] });
	onTestFinished(() => void vi.useRealTimers());
	let isBreaking = false;
	const breaks = () => {
		const isBroken = isBreaking;
		if (isBroken) vi.advanceTimersByTime(20_001);
		isBreaking = false;
		return isBroken;
	};
	const breaking = withBreaks(await connect(url), breaks);
	const store = await openPostgresStore(breaking, { error: () => undefined });
	onTestFinished(() => store.close());
	isBreaking = true;
	await expect(append(store, sample())).rejects.toThrow("the request could not be stored in time");
	expect(await append(store, sample())).toMatchObject({ sequence: 1n });
});

test("a group is written again without the requests whose senders no longer wait", async () => {
	const url = await databases.createMigrated();
	const signal = { aborted: false };
	let isBreaking = false;
	const breaks = () => {
		const isBroken = isBreaking;
		if (isBroken) signal.aborted = true;
		isBreaking = false;
		return isBroken;
	};
	const store = await openPostgresStore(withBreaks(await connect(url), breaks), { error: () => undefined });
	onTestFinished(() => store.close());
	isBreaking = true;
	const [abandoned, awaited] = [sample(), sample()];
	const outcomes = await Promise.allSettled([
		append(store, abandoned, signal),
		append(store, awaited, { aborted: false }),
		appendEvents(store, batch(abandoned.conversationId, [event()]), signal),
	]);
	expect(outcomes).toMatchObject([
		{ status: "rejected", reason: SENDER_GONE },
		{ status: "fulfilled", value: { sequence: 1n } },
		{ status: "rejected", reason: SENDER_GONE },
	]);
	const kept = await store.updates.list({ after: 0n, limit: 10, withRecords: false });
	expect(kept.map(({ conversationId }) => conversationId)).toEqual([awaited.conversationId]);
	expect(await store.events.list({ after: 0n, limit: 10 })).toEqual([]);
});

test.each(["fast", "immediate"] as const)("appends continue without loss after a server stop: %s", async (mode) => {
	const { stores } = await replicas(2);
	const acknowledged = new Map<bigint, string>();
	const failures: unknown[] = [];
	let writing = true;
	const write = async (store: Store) => {
		while (writing) {
			const update = sample();
			try {
				const { sequence } = await append(store, update);
				acknowledged.set(sequence, update.conversationId);
			} catch (error) {
				failures.push(error);
				await delay(20);
			}
		}
	};
	const writers = stores.flatMap((store) => [write(store), write(store)]);
	await expect.poll(() => acknowledged.size, { timeout: 30_000 }).toBeGreaterThan(50);
	await databases.server.stop(mode);
	// Appends whose commit has an unknown outcome wait; others fail.
	for (const store of stores) await expect(store.check()).rejects.toMatchObject({ kind: "unavailable" });
	const { size } = acknowledged;
	await databases.server.start();
	await expect.poll(() => acknowledged.size, { timeout: 60_000 }).toBeGreaterThan(size + 50);
	writing = false;
	await Promise.all(writers);
	for (const failure of failures) expect(failure).toMatchObject({ name: expect.any(String), kind: "unavailable" });
	const [store] = stores;
	const kept = new Map<bigint, string>();
	for (let after = 0n; ; ) {
		const page = (await store?.updates.list({ after, limit: 1_000, withRecords: false })) ?? [];
		for (const { sequence, conversationId } of page) kept.set(sequence, conversationId);
		if (page.length === 0) break;
		after = page.at(-1)?.sequence ?? 0n;
	}
	expect(new Set(kept.values()).size).toBe(kept.size);
	for (const [sequence, conversationId] of acknowledged) expect(kept.get(sequence)).toBe(conversationId);
});

function raise(message: string): never {
	throw new Error(message);
}

test("one replica at a time has a claim, until it ends", async () => {
	const { stores } = await replicas(2);
	const [one, other] = stores;
	if (one === undefined || other === undefined) throw new Error("there are two stores");
	expect(await one.claim({ name: "work", holder: "a", now: start, until: start + 10n })).toBe(true);
	expect(await other.claim({ name: "work", holder: "b", now: start + 9n, until: start + 20n })).toBe(false);
	expect(await other.claim({ name: "other work", holder: "b", now: start, until: start + 10n })).toBe(true);
	// The holder renews it.
	expect(await one.claim({ name: "work", holder: "a", now: start + 9n, until: start + 30n })).toBe(true);
	expect(await other.claim({ name: "work", holder: "b", now: start + 29n, until: start + 40n })).toBe(false);
	expect(await other.claim({ name: "work", holder: "b", now: start + 30n, until: start + 40n })).toBe(true);
	expect(await one.claim({ name: "work", holder: "a", now: start + 31n, until: start + 50n })).toBe(false);
	const now = start + 100n;
	const claims = await Promise.all(
		stores.map((store, n) => store.claim({ name: "race", holder: `${n}`, now, until: now + 10n })),
	);
	expect(claims.filter(Boolean)).toHaveLength(1);
});
