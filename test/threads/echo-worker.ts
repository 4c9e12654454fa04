import { serve } from "../../src/threads/serve.ts";
import type { EchoCalls } from "./echo-calls.ts";

/** A worker thread that echoes arguments, fails, or ends. */

serve<{ unusable: boolean }, EchoCalls, "sum">(({ unusable }) => {
	if (unusable) throw new Error("no start");
	return {
		methods: {
			echo: (value) => value,
			pause: (milliseconds) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds),
			fail() {
				throw new RangeError("out of luck");
			},
			exit: (code) => process.exit(code),
			exhaust() {
				const all: number[][] = [];
				for (;;) all.push(Array.from({ length: 100_000 }, (_, n) => n));
			},
			close: () => undefined,
		},
		group: {
			names: ["sum"],
			maxBytes: 10,
			bytesOf: (bytes: Uint8Array) => bytes.byteLength,
			answer: (args) => args.map(() => ({ value: args.reduce((sum, { byteLength }) => sum + byteLength, 0) })),
		},
	};
});
