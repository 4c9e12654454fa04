import { randomUUID } from "node:crypto";
import pg from "pg";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { SENDER_GONE } from "../../../src/errors.ts";
import { postgresSession } from "../../../src/store/postgres/session.ts";
import { lockConversations, type Session } from "../../../src/store/postgres/transaction.ts";
import { listUpdates } from "../../../src/store/read-logs.ts";
import { appendEvents, batch, event } from "../event-samples.ts";
import { append, sample, second, start } from "../samples.ts";
import { connect, Databases, openStore } from "./databases.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

/** Opens a store in a new database, and a further session. `waiting` returns the processes that wait for an event. */
async function opened() {
	const url = await databases.createMigrated();
	const store = await openStore(url);
	onTestFinished(() => store.close());
	const session = new pg.Client({ connectionString: url, ssl: false });
	await session.connect();
	onTestFinished(() => session.end());
	const waiting = async (event: string) => {
		// Otherwise the server would show the same sessions throughout a transaction.
		await session.query("SELECT pg_stat_clear_snapshot()");
		const { rows } = await session.query<{ pid: number }>(
			"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND $1 IN (wait_event_type, wait_event)",
			[event],
		);
		return rows.map(({ pid }) => pid);
	};
	return { url, store, session, waiting };
}

test("a conversation that is posted again while its deletion is pruned is kept", async () => {
	const { store, session, waiting } = await opened();
	const { conversationId } = sample();
	const at = (seconds: bigint, status: string) => {
		const time = start + seconds * second;
		return sample({ conversationId, receivedAt: time, columns: { status, createdAt: time, updatedAt: time } });
	};
	await append(store, at(0n, "deleting"));
	const lock = lockConversations([conversationId]);
	await session.query("BEGIN");
	await session.query(lock.text, [...(lock.values ?? [])]);
	const revived = at(10n, "running");
	const appending = append(store, revived);
	await expect.poll(() => waiting("Lock"), { timeout: 30_000 }).toHaveLength(1);
	// The pruner has found the conversation, and waits for its lock after the post.
	const pruning = store.prune({ receivedBefore: start + second, limit: 100 });
	await expect.poll(() => waiting("Lock"), { timeout: 30_000 }).toHaveLength(2);
	await session.query("COMMIT");
	const { sequence } = await appending;
	await pruning;
	expect(await store.get(conversationId)).toMatchObject({ sequence, receivedAt: revived.receivedAt });
});

test("a page of updates that is read during an erasure lacks no update before it", async () => {
	const { url, store } = await opened();
	await using connections = await connect(url);
	const erased = sample();
	await append(store, erased);
	let isErased = false;
	const page = await connections.read(async (session) => {
		// Between the statements of the page, an update is stored, and then an erasure.
		const query: Session["query"] = async (...queries) => {
			const results = [];
			for (const one of queries) {
				results.push(...(await session.query(one)));
				if (isErased) continue;
				isErased = true;
				await append(store, sample());
				await store.erase({ conversationId: erased.conversationId, owner: undefined, erasedAt: start });
			}
			return results;
		};
		return await listUpdates(
			postgresSession({
				query,
				spread: session.spread,
				hasSnapshot: session.hasSnapshot,
			}),
			{
				after: 0n,
				limit: 10,
				withRecords: false,
			},
		);
	});
	expect(isErased).toBe(true);
	expect(page.map(({ sequence }) => sequence)).toEqual([1n]);
	const after = await store.updates.list({ after: 1n, limit: 10, withRecords: false });
	expect(after.map(({ sequence }) => sequence)).toEqual([2n, 3n]);
});

test("a group that waits for a conversation's lock does not block the next group", async () => {
	const { store, session, waiting } = await opened();
	const [held, other] = [sample(), sample()];
	const lock = lockConversations([held.conversationId]);
	await session.query("BEGIN");
	await session.query(lock.text, [...(lock.values ?? [])]);
	const appending = append(store, held);
	await expect.poll(() => waiting("Lock"), { timeout: 30_000 }).toHaveLength(1);
	const outcome = await append(store, other);
	expect([outcome.sequence, await waiting("Lock")]).toEqual([1n, [expect.any(Number)]]);
	await session.query("COMMIT");
	expect((await appending).sequence).toBe(2n);
});

test("a request that waits for a lock is not stored after its sender has sent it to another replica", async () => {
	const { url, store, session, waiting } = await opened();
	const replica = await openStore(url);
	onTestFinished(() => replica.close());
	const conversationId = randomUUID();
	const older = sample({ conversationId, columns: { updatedAt: start } });
	const newer = sample({ conversationId, columns: { updatedAt: start + 1n } });
	const lock = lockConversations([conversationId]);
	await session.query("BEGIN");
	await session.query(lock.text, [...(lock.values ?? [])]);
	// Both updates share a transaction, which will get the lock before that of the other store.
	const appending = Promise.all([append(replica, older), append(replica, newer)]);
	await expect.poll(() => waiting("Lock"), { timeout: 30_000 }).toHaveLength(1);
	const signal = { aborted: false };
	const abandoned = append(store, older, signal);
	const refused = expect(abandoned).rejects.toThrow(SENDER_GONE);
	await expect.poll(() => waiting("Lock"), { timeout: 30_000 }).toHaveLength(2);
	signal.aborted = true;
	await session.query("COMMIT");
	expect((await appending).map(({ sequence }) => sequence)).toEqual([1n, 2n]);
	await refused;
	expect((await store.updates.range()).newest).toBe(2n);
});

test("a duplicate is not acknowledged before the standby has the original", async () => {
	const { url, store, session, waiting } = await opened();
	const replica = await openStore(url);
	onTestFinished(() => replica.close());
	const { server } = databases;
	onTestFinished(() => server.setSynchronousStandbys(""));
	const update = sample();
	const events = batch(randomUUID(), [event()]);
	await server.setSynchronousStandbys("away");
	const first = Promise.allSettled([append(store, update), appendEvents(store, events)]);
	await expect.poll(() => waiting("SyncRep"), { timeout: 30_000 }).toHaveLength(1);
	// This ends the wait: the commit is on this server only, and is visible.
	for (const pid of await waiting("SyncRep")) await session.query("SELECT pg_cancel_backend($1)", [pid]);
	const list = async () => (await replica.updates.list({ after: 0n, limit: 10, withRecords: false })).length;
	await expect.poll(list, { timeout: 30_000 }).toBe(1);
	const acknowledged: unknown[] = [];
	const repeated = [
		append(replica, update).then(({ duplicate }) => acknowledged.push({ duplicate })),
		appendEvents(replica, events).then((answer) => acknowledged.push({ stored: answer?.stored })),
	];
	// The search for the outcome of the first attempt, and the group of the duplicates.
	await expect.poll(() => waiting("SyncRep"), { timeout: 30_000 }).toHaveLength(2);
	expect(acknowledged).toEqual([]);
	await server.setSynchronousStandbys("");
	await Promise.all([first, ...repeated]);
	expect(acknowledged).toEqual(expect.arrayContaining([{ duplicate: true }, { stored: 0 }]));
});
