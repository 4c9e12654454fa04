import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { pruneUntilStopped, type RetentionPace, type RetentionPolicy } from "../../../src/conversations/retention.ts";
import type { PrunePolicy } from "../../../src/store/remove.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../../src/store/store.ts";
import { appendEvents, batch, event } from "../../store/event-samples.ts";
import { append, sample, second, start } from "../../store/samples.ts";
import { TempFolder } from "../../support/temp.ts";

const day = 86_400n * second;
const KEEP_ALL: RetentionPolicy = { days: undefined, updatesPerConversation: undefined, eventDays: undefined };
const pace: RetentionPace = { step: 2, pause: 0, pauseFactor: 0, interval: 3_600_000 };

let folder: TempFolder;
let store: Store;
let errors: unknown[];

beforeEach(async () => {
	errors = [];
	folder = new TempFolder();
	store = await openSqliteStore(folder.file("conversations.db"), { error() {} });
});

afterEach(async () => {
	await store.close();
	folder[Symbol.dispose]();
});

/** Runs retention until no step removes anything, and returns the arguments of its steps. */
async function prune(policy: RetentionPolicy, now: bigint): Promise<PrunePolicy[]> {
	const steps: PrunePolicy[] = [];
	const done = new AbortController();
	const { days, updatesPerConversation, eventDays } = policy;
	const policies = [days ?? updatesPerConversation, eventDays].filter((one) => one !== undefined);
	let idle = 0;
	const count = (removed: number) => {
		idle = removed === 0 ? idle + 1 : 0;
		if (idle === policies.length) done.abort();
		return removed;
	};
	const counting: Pick<Store, "prune" | "pruneEvents"> = {
		prune: async (step) => {
			steps.push(step);
			return count(await store.prune(step));
		},
		pruneEvents: async (receivedBefore, limit) => {
			steps.push({ receivedBefore, limit });
			return count(await store.pruneEvents(receivedBefore, limit));
		},
	};
	using _clock = vi.spyOn(Date, "now").mockReturnValue(Number(now / 1000n));
	await pruneUntilStopped(counting, policy, done.signal, (error) => errors.push(error), pace);
	return steps;
}

async function sequences(): Promise<bigint[]> {
	const updates = await store.updates.list({ after: 0n, limit: 1000, withRecords: false });
	return updates.map((update) => update.sequence);
}

test("updates older than the limit are pruned in small steps, and the current one stays", async () => {
	const { conversationId } = sample();
	for (let index = 0n; index < 5n; index++)
		await append(store, sample({ conversationId, receivedAt: start + index * day }));
	const steps = await prune({ ...KEEP_ALL, days: 0.5 }, start + 10n * day);
	const step = { receivedBefore: start + 10n * day - day / 2n, updatesPerConversation: undefined, limit: 2 };
	expect(steps).toEqual([step, step, step]);
	expect(await sequences()).toEqual([5n]);
	expect((await store.get(conversationId))?.sequence).toBe(5n);
});

test("a conversation keeps the configured number of updates", async () => {
	const { conversationId } = sample();
	for (let index = 0n; index < 5n; index++) await append(store, sample({ conversationId }));
	await append(store, sample());
	await prune({ ...KEEP_ALL, updatesPerConversation: 2 }, start);
	expect(await sequences()).toEqual([4n, 5n, 6n]);
});

test("a deleted conversation is removed when its deletion is older than the limit", async () => {
	const { conversationId } = sample();
	await append(store, sample({ conversationId, receivedAt: start }));
	await append(store, sample({ conversationId, receivedAt: start + day, columns: { status: "deleting" } }));
	await prune({ ...KEEP_ALL, days: 3 }, start + 3n * day + 1000n);
	expect(await sequences()).toEqual([2n]);
	await prune({ ...KEEP_ALL, days: 3 }, start + 4n * day + 1000n);
	expect(await sequences()).toEqual([]);
	expect(await store.get(conversationId)).toBeUndefined();
});

test("events are pruned by a limit of their own, in steps that alternate with those of updates", async () => {
	const { conversationId } = sample();
	await append(store, sample({ conversationId, receivedAt: start }));
	for (let index = 0n; index < 5n; index++)
		await appendEvents(store, batch(conversationId, [event()], { receivedAt: start + index * day }));
	const now = start + 5n * day;
	const history = { receivedBefore: now - 9n * day, updatesPerConversation: undefined, limit: 2 };
	const events = { receivedBefore: now - day - day / 2n, limit: 2 };
	expect(await prune({ ...KEEP_ALL, days: 9, eventDays: 1.5 }, now)).toEqual([
		history,
		events,
		history,
		events,
		history,
		events,
	]);
	const kept = await store.events.list({ after: 0n, limit: 10 });
	expect(kept.map(({ sequence }) => sequence)).toEqual([5n]);
	expect(await sequences()).toEqual([1n]);
	expect(await prune({ ...KEEP_ALL, eventDays: 0.1 }, now)).toHaveLength(2);
	expect(await store.events.list({ after: 0n, limit: 10 })).toEqual([]);
});

test("without a policy nothing is pruned, and an unexpected failure is reported and retried", async () => {
	const calls: unknown[] = [];
	const recordCall = async (policy: unknown) => calls.push(policy);
	let rounds = 0;
	const ended = new AbortController();
	const further = async () => {
		rounds += 1;
		if (rounds === 3) ended.abort();
		return 0;
	};
	await pruneUntilStopped(
		{ prune: recordCall, pruneEvents: recordCall },
		KEEP_ALL,
		ended.signal,
		(error) => errors.push(error),
		{ ...pace, interval: 0 },
		[further],
	);
	expect([rounds, calls]).toEqual([3, []]);
	const done = new AbortController();
	const failure = new TypeError("not foreseen");
	let tries = 0;
	const fail = async () => {
		tries += 1;
		if (tries === 4) done.abort();
		throw failure;
	};
	const failing: Pick<Store, "prune" | "pruneEvents"> = { prune: fail, pruneEvents: fail };
	await pruneUntilStopped(failing, { ...KEEP_ALL, days: 1, eventDays: 1 }, done.signal, (error) => errors.push(error), {
		...pace,
		interval: 0,
	});
	expect(tries).toBe(4);
	expect(errors).toEqual([failure, failure, failure, failure]);
});

test("pruning pauses after a step for a multiple of its duration", async () => {
	const done = new AbortController();
	let steps = 0;
	const prune = async () => {
		await nextTurn();
		steps += 1;
		return 1;
	};
	const policy = { ...KEEP_ALL, days: 1 };
	const longPauses = { ...pace, pauseFactor: 1e6 };
	const ended = pruneUntilStopped(
		{ prune, pruneEvents: prune },
		policy,
		done.signal,
		(error) => errors.push(error),
		longPauses,
	);
	// Without the pause there would be a step every few turns.
	for (let turn = 0; turn < 50; turn++) await delay(1);
	done.abort();
	await ended;
	expect([steps, errors]).toEqual([1, []]);
});
