import { expect, test } from "vitest";
import { StartedRun } from "../../src/rpc/command-methods.ts";

const underWay = "One is under way";

test("a run shows its progress until it has ended, and only one is under way", async () => {
	const run = new StartedRun<number>(underWay);
	expect(() => run.state).toThrow("No run was started");
	let show: (progress: number) => void = () => undefined;
	const ended = Promise.withResolvers<void>();
	run.start(0, (onProgress) => {
		show = onProgress;
		return ended.promise;
	});
	expect(run.state).toEqual({ progress: 0, running: true, error: undefined });
	show(1);
	expect(run.state).toEqual({ progress: 1, running: true, error: undefined });
	expect(() => run.start(0, () => Promise.resolve())).toThrow(underWay);
	const error = new Error("it failed");
	ended.reject(error);
	await expect.poll(() => run.state).toEqual({ progress: 1, running: false, error });
	run.start(0, () => Promise.resolve());
	await expect.poll(() => run.state).toEqual({ progress: 0, running: false, error: undefined });
});

test("a run ends that no command looks at", async () => {
	const run = new StartedRun<number>(underWay, 1);
	const ended = Promise.withResolvers<unknown>();
	run.start(0, (_, signal) => {
		signal.addEventListener("abort", () => ended.resolve(signal.reason));
		return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
	});
	const reason = await ended.promise;
	expect(reason).toMatchObject({ kind: "unavailable", message: "The command that started the run has gone" });
	await expect.poll(() => run.state).toEqual({ progress: 0, running: false, error: reason });
});
