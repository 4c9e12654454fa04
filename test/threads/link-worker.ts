import type { Received } from "../../src/threads/messages.ts";
import { serve } from "../../src/threads/worker.ts";

/** A worker that gives back what it is sent, or ends. */

interface Request {
	readonly kind: string;
	readonly value?: string;
}

serve(() => ({
	answer(requests: readonly Received<Request>[], post) {
		for (const {
			request: { kind, value },
		} of requests) {
			if (kind === "exit") process.exit(3);
			post([{ value }]);
		}
	},
}));
