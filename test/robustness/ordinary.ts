import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { z } from "zod";
import type { Endpoints } from "../support/clients.ts";

/** What ordinary clients do: post and read records and ask for the health, or without posting. */
export type OrdinaryWork = "all" | "reads";

/** What ordinary clients have seen. */
const outcome = z.object({
	count: z.number(),
	slowest: z.object({ what: z.string(), milliseconds: z.number() }),
	problems: z.array(z.string()),
});

/** Clients that do what anyone does. They have a thread of their own, so that what makes trouble does not delay them. */
export class OrdinaryClients {
	readonly #worker: Worker;
	/** What the worker fails with; `once` would let an error pass that comes between two waits. */
	readonly #failed: Promise<never>;

	private constructor(worker: Worker) {
		this.#worker = worker;
		this.#failed = new Promise((_, reject) => worker.once("error", reject));
		this.#failed.catch(() => undefined);
	}

	/** Starts them, and waits until they have begun. */
	static async start({ http, grpc }: Endpoints, key: string, work: OrdinaryWork): Promise<OrdinaryClients> {
		const worker = new Worker(new URL("./ordinary-worker.ts", import.meta.url), {
			workerData: { http, grpc, key, work },
		});
		const clients = new OrdinaryClients(worker);
		await Promise.race([once(worker, "message"), clients.#failed]);
		return clients;
	}

	/** Stops them, and tells what they have seen. */
	async stop(): Promise<z.output<typeof outcome>> {
		const told = once(this.#worker, "message");
		this.#worker.postMessage("stop");
		const [message] = await Promise.race([told, this.#failed]);
		await this.#worker.terminate();
		return outcome.parse(message);
	}
}
