import { randomUUID } from "node:crypto";
import { expect, test, vi } from "vitest";
import { NOTHING } from "../../src/reconcile/reconcile.ts";
import { reconcileUntilStopped } from "../../src/reconcile/reconciler.ts";
import { LiveService } from "../conversations/ingest/live-service.ts";

const target = {
	address: { url: new URL("http://localhost"), key: undefined },
	senders: ["agent"],
};

/** Starts the job on a real store with a short time between looks. Returns the number of runs so far. */
function startJob(service: LiveService, options: { readonly interval: number; readonly onRun?: () => Promise<void> }) {
	const stop = new AbortController();
	const errors: unknown[] = [];
	let runs = 0;
	const job = reconcileUntilStopped(
		{
			reconciler: {
				run: async () => {
					runs += 1;
					await options.onRun?.();
					return { progress: NOTHING, error: undefined };
				},
			},
			store: service.store,
			holder: "this process",
			interval: options.interval,
			gapCheck: 5,
			onError: (error) => errors.push(error),
			stopping: stop.signal,
		},
		"agent",
		target,
	);
	return {
		errors,
		runs: () => runs,
		async [Symbol.asyncDispose]() {
			stop.abort();
			await job;
		},
	};
}

const eventAfter = (parent: string) => ({
	...{ id: randomUUID(), timestamp: "2026-11-20T10:00:00", source: "agent", kind: "MessageEvent" },
	parent_id: parent,
});

/** Posts a conversation that misses an event. */
async function postGap(service: LiveService): Promise<void> {
	const id = randomUUID();
	await service.post({
		id,
		workspace: { kind: "LocalWorkspace", working_dir: "/workspace" },
		agent: { kind: "ACPAgent", acp_command: ["acp"] },
	});
	await service.batch(id, [eventAfter("__root__"), eventAfter(randomUUID())]);
}

test("a run begins at the start and after each interval", async () => {
	await using service = await LiveService.open();
	await using job = startJob(service, { interval: 20 });
	await vi.waitFor(() => expect(job.runs()).toBeGreaterThan(3), { timeout: 30_000 });
	expect(job.errors).toEqual([]);
});

test("a run begins soon after a new gap, and a gap that stays does not begin another one", async () => {
	await using service = await LiveService.open();
	await using job = startJob(service, { interval: 3_600_000 });
	await vi.waitFor(() => expect(job.runs()).toBe(1), { timeout: 30_000 });
	await postGap(service);
	await vi.waitFor(() => expect(job.runs()).toBe(2), { timeout: 30_000 });
	// Many looks later.
	const looks = vi.spyOn(service.store, "countConversations");
	await vi.waitFor(() => expect(looks.mock.calls.length).toBeGreaterThan(10), { timeout: 30_000 });
	expect(job.runs()).toBe(2);
});

test("a run begins soon after a gap that appeared during the run before", async () => {
	await using service = await LiveService.open();
	const onRun = async () => {
		if (job.runs() === 1) await postGap(service);
	};
	await using job = startJob(service, { interval: 3_600_000, onRun });
	await vi.waitFor(() => expect(job.runs()).toBe(2), { timeout: 30_000 });
	expect(job.errors).toEqual([]);
});

test("a run that fails is reported, and the next one begins", async () => {
	await using service = await LiveService.open();
	const failure = new Error("failed");
	await using job = startJob(service, { interval: 20, onRun: async () => Promise.reject(failure) });
	await vi.waitFor(() => expect(job.errors.length).toBeGreaterThan(1), { timeout: 30_000 });
	expect(new Set(job.errors)).toEqual(new Set([failure]));
});
