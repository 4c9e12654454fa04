import { threadId } from "node:worker_threads";
import { serve } from "../../src/threads/serve.ts";

/** A worker thread that echoes arguments, fails, or ends. */

/** The calls that the worker thread of the tests answers. */
export type EchoCalls = typeof methods & {
	/** Grouped: returns the number of bytes of all calls in the group. */
	sum(bytes: Uint8Array): number;
};

/** What the next parts of the background work return, and where they are counted. */
let parts: (number | undefined)[] = [];
let counter: Int32Array = new Int32Array(1);

const methods = {
	/** Lets calls begin background work while it has parts. */
	setParts({ results, counter: counted }: { results: (number | undefined)[]; counter: Int32Array }): void {
		parts = results;
		counter = counted;
	},
	echo: (value: unknown) => value,
	threadId: () => threadId,
	/** Blocks the thread for a number of milliseconds. */
	pause: (milliseconds: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds),
	/** Wakes a thread that waits for the memory to change. */
	reach(shared: Int32Array): void {
		Atomics.store(shared, 0, 1);
		Atomics.notify(shared, 0);
	},
	fail(): void {
		throw new RangeError("out of luck");
	},
	exit: (code: number) => process.exit(code),
	/** Ends the thread after the answer. */
	exitSoon: () => void setTimeout(() => process.exit(3), 1),
	/** Allocates memory until the heap is exhausted. */
	exhaust(): void {
		const all: number[][] = [];
		for (;;) all.push(Array.from({ length: 100_000 }, (_, n) => n));
	},
};

serve(({ unusable }: { unusable: boolean }) => {
	if (unusable) throw new Error("no start");
	return {
		methods,
		group: {
			names: ["sum"],
			maxBytes: 10,
			bytesOf: (bytes: Uint8Array) => bytes.byteLength,
			answer: async (args: readonly Uint8Array[]) =>
				args.map(() => ({ value: args.reduce((sum, { byteLength }) => sum + byteLength, 0) })),
		},
		background: {
			afterCalls(start) {
				if (parts.length > 0) start();
			},
			async run() {
				Atomics.add(counter, 0, 1);
				return parts.shift();
			},
		},
	};
});
