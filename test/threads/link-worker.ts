import type { Batch } from "../../src/threads/messages.ts";
import { serve } from "../../src/threads/worker.ts";

/** A worker that gives back what it is sent, ends, or fails at its upkeep. */

interface Request {
	readonly kind: string;
	readonly value?: string;
}

let failing = false;

serve(() => ({
	answer({ requests }: Batch<Request>, post) {
		for (const { kind, value } of requests) {
			if (kind === "exit") process.exit(3);
			failing = value === "trouble";
			post([{ value }]);
		}
	},
	rest() {
		if (failing) throw new Error("upkeep");
	},
}));
