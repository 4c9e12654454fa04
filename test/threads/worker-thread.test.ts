import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { WorkerThread, type WorkerThreadOptions } from "../../src/threads/worker-thread.ts";
import type { EchoCalls } from "./echo-worker.ts";

function started(options: Partial<WorkerThreadOptions> = {}) {
	const lines: unknown[] = [];
	const thread = new WorkerThread<EchoCalls>({
		owner: "the store",
		name: "test",
		script: new URL("./echo-worker", import.meta.url),
		data: { unusable: false },
		toError: ({ message }, of) =>
			new ServiceError(of === "call" ? "internal" : "unavailable", "it failed", { cause: new Error(message) }),
		log: { error: (fields, message) => lines.push([fields, message]) },
		youngGenerationMiB: 4,
		...options,
	});
	onTestFinished(() => thread.close());
	return { thread, lines };
}

const unavailable = { name: "ServiceError", kind: "unavailable", message: "it failed" };

test("each of many concurrent calls gets its own result", async () => {
	const { thread } = started();
	const values = Array.from({ length: 700 }, (_, n) => ({ n, big: 2n ** 60n, bytes: new Uint8Array([n]) }));
	expect(await Promise.all(values.map((value) => thread.calls.echo(value)))).toEqual(values);
});

test("a worker has at most as many calls at a time as its window", async () => {
	const { thread } = started({ maxCallsSent: 2 });
	await thread.start();
	const paused = thread.calls.pause(100);
	const sums = await Promise.all([1, 1, 1, 1, 1].map((size) => thread.calls.sum(new Uint8Array(size))));
	await paused;
	// Without the limit, all five calls would be one group of 5 bytes.
	expect(Math.max(...sums)).toBeLessThan(3);
});

test("a waiting call is not made when its signal is aborted", async () => {
	const { thread } = started({ maxCallsSent: 1 });
	await thread.start();
	const gone = new AbortController();
	const paused = thread.calls.pause(100);
	const outcomes = Promise.allSettled([
		thread.calls.exit(3, gone.signal),
		thread.calls.echo(1, new AbortController().signal),
	]);
	gone.abort();
	await paused;
	expect(await outcomes).toMatchObject([
		{ status: "rejected", reason: { kind: "unavailable", message: "the sender no longer waits for the response" } },
		{ status: "fulfilled", value: 1 },
	]);
});

test("grouped calls are answered together up to the group's byte limit, a larger call alone", async () => {
	const { thread } = started();
	await thread.start();
	const paused = thread.calls.pause(100);
	const sizes = [4, 4, 4, 30, 1];
	const sums = await Promise.all(sizes.map((size) => thread.calls.sum(new Uint8Array(size))));
	await paused;
	expect(sums).toEqual([8, 8, 4, 30, 1]);
});

test.each([
	{ sendsTogether: 3, turns: [1, 1, 1, 1], sizes: [3, 3, 3, 1] },
	{ sendsTogether: 3, turns: [1, 2, 1], sizes: [2, 2, 1] },
	{ sendsTogether: 1, turns: [1, 1], sizes: [1, 1] },
	{ sendsTogether: 2, turns: [0, 0, 0, 1], sizes: [4, 4, 4, 4] },
	{ sendsTogether: 2, sentAhead: ["sum"], turns: [0, 0, 1], sizes: [3, 3, 3] },
	{ sendsTogether: 2, sentAhead: ["sum"], turns: [0, 0, 0, 1], sizes: [2, 2, 2, 2] },
	{ sendsTogether: 2, sentAhead: ["sum"], turns: [0, 0, 0, 0, 0, 1], sizes: [3, 3, 3, 3, 3, 3] },
])(
	"calls, with $turns turns of the event loop after each, are sent together in groups of $sizes when $sendsTogether should be",
	async ({ turns, sizes, ...options }) => {
		const { thread } = started(options);
		await thread.start();
		const sums: Promise<number>[] = [];
		for (const turnsAfter of turns) {
			sums.push(thread.calls.sum(new Uint8Array(1)));
			for (let turn = 0; turn < turnsAfter; turn++) await nextTurn();
		}
		expect(await Promise.all(sums)).toEqual(sizes);
	},
);

test("calls that are sent ahead are sent before those that were answered go on", async () => {
	const { thread } = started({ sendsTogether: 2, sentAhead: ["reach"] });
	await thread.start();
	const shared = new Int32Array(new SharedArrayBuffer(4));
	const reached = thread.calls.pause(100).then(() => Atomics.wait(shared, 0, 0, 10_000));
	for (let turn = 0; turn < 3; turn++) await nextTurn();
	const others = [thread.calls.echo("too"), thread.calls.reach(shared)];
	expect(["ok", "not-equal"]).toContain(await reached);
	expect(await Promise.all(others)).toEqual(["too", undefined]);
});

/** Time that no test waits for, in milliseconds. */
const NEVER = 1_000_000;

/** Starts a thread whose background work has some parts. Returns it with what counts these. */
async function withBackground(...results: (number | undefined)[]) {
	const { thread } = started();
	const counter = new Int32Array(new SharedArrayBuffer(4));
	await thread.calls.setParts({ results, counter });
	return { calls: thread.calls, counter };
}

test("while calls arrive, the parts of the background work have pauses between them", async () => {
	const { calls, counter } = await withBackground(NEVER, undefined);
	for (let n = 0; n < 20; n++) {
		await calls.echo(n);
		await delay(5);
	}
	expect(Atomics.load(counter, 0)).toBe(1);
});

test("without calls, the parts of the background work follow each other at once", async () => {
	const { counter } = await withBackground(0, NEVER, undefined);
	await vi.waitFor(() => expect(Atomics.load(counter, 0)).toBe(3), 10_000);
});

test("background work that a call begins while it is under way is done once more, in one chain", async () => {
	const { calls, counter } = await withBackground(20, undefined, undefined, undefined, undefined);
	await calls.echo(1);
	await vi.waitFor(() => expect(Atomics.load(counter, 0)).toBe(3), 10_000);
	await delay(50);
	expect(Atomics.load(counter, 0)).toBe(3);
});

test("a thread that is idle ends, and the next call starts another one", async () => {
	const { thread, lines } = started({ idleMilliseconds: 1 });
	const first = await thread.calls.threadId();
	// A poll after a pause of the thread's idle time meets another thread.
	await expect.poll(() => thread.calls.threadId(), { interval: 20, timeout: 30_000 }).not.toBe(first);
	expect(lines).toEqual([]);
});

test("a failing call is logged and does not affect others", async () => {
	const { thread, lines } = started();
	const failure = { kind: "internal", cause: new Error("out of luck") };
	const outcomes = await Promise.allSettled([thread.calls.fail(), thread.calls.echo(1)]);
	expect(outcomes).toMatchObject([
		{ status: "rejected", reason: failure },
		{ status: "fulfilled", value: 1 },
	]);
	expect(lines).toMatchObject([[{ err: failure, operation: "fail" }, "the store failed"]]);
});

test("when a thread ends, the calls that it had fail, and the next call restarts it", async () => {
	const { thread, lines } = started();
	expect(await thread.calls.echo("before")).toBe("before");
	const outcomes = await Promise.allSettled([thread.calls.exit(3), thread.calls.echo("behind it")]);
	expect(outcomes).toMatchObject([
		{ status: "rejected", reason: unavailable },
		{ status: "rejected", reason: unavailable },
	]);
	expect(lines).toMatchObject([
		[{ err: unavailable, operation: "test" }, "a worker thread of the store ended unexpectedly"],
	]);
	expect(await thread.calls.echo("after")).toBe("after");
});

test("calls that wait when a thread ends are answered by the next one", async () => {
	const { thread, lines } = started({ maxCallsSent: 1 });
	const outcomes = await Promise.allSettled([
		...[1, 2].map((n) => thread.calls.echo(n)),
		thread.calls.exit(3),
		...[4, 5].map((n) => thread.calls.echo(n)),
	]);
	const done = (value: number) => ({ status: "fulfilled", value });
	const failed = { status: "rejected", reason: unavailable };
	expect(outcomes).toMatchObject([done(1), done(2), failed, done(4), done(5)]);
	expect(lines).toHaveLength(1);
});

test("calls that wait for further ones when a thread ends are answered by the next one", async () => {
	const { thread, lines } = started({ sendsTogether: 1_000_000 });
	await thread.calls.exitSoon();
	const echoes: Promise<unknown>[] = [];
	while (lines.length === 0) {
		echoes.push(thread.calls.echo(echoes.length));
		await nextTurn();
	}
	expect(await Promise.all(echoes)).toEqual(Array.from(echoes.keys()));
});

test("a call that exhausts the thread's memory fails, and the next one succeeds", async () => {
	const { thread } = started({ oldGenerationMiB: 16 });
	await expect(thread.calls.exhaust()).rejects.toMatchObject(unavailable);
	expect(await thread.calls.echo(1)).toBe(1);
});

test("calls after close are refused, earlier ones are completed", async () => {
	const { thread } = started();
	const last = thread.calls.echo("last");
	await thread.close();
	expect(await last).toBe("last");
	await expect(thread.calls.echo("late")).rejects.toMatchObject({
		kind: "unavailable",
		message: "the store is closed",
	});
});

test("calls fail when the thread cannot start", async () => {
	const { thread } = started({ data: { unusable: true } });
	await expect(thread.start()).rejects.toMatchObject({ ...unavailable, cause: new Error("no start") });
	await expect(thread.calls.echo(1)).rejects.toMatchObject(unavailable);
	const missing = started({ script: new URL("./no-such-worker", import.meta.url) });
	await expect(missing.thread.calls.echo(1)).rejects.toMatchObject(unavailable);
});

test("an observer is notified of the thread, of its queue, and of groups of calls that were answered together", async () => {
	const reports: unknown[] = [];
	let queue = () => ({ calls: -1, age: -1 });
	const { thread } = started({
		observer: {
			onThread: (name, figures) => {
				reports.push(["added", name]);
				queue = figures;
			},
			onGroup: ({ size, duration }) => {
				reports.push(["grouped", size]);
				expect(duration).toBeGreaterThanOrEqual(0);
			},
		},
	});
	expect(queue()).toEqual({ calls: 0, age: 0 });
	await thread.start();
	const calls = [thread.calls.pause(1), thread.calls.sum(new Uint8Array(2)), thread.calls.sum(new Uint8Array(3))];
	expect(queue()).toEqual({ calls: 3, age: expect.any(Number) });
	expect(await Promise.all(calls)).toEqual([undefined, 5, 5]);
	await expect(thread.calls.fail()).rejects.toThrow();
	await expect(thread.calls.exit(3)).rejects.toThrow();
	expect(queue()).toEqual({ calls: 0, age: 0 });
	expect(reports).toEqual([
		["added", "test"],
		["grouped", 2],
	]);
});
