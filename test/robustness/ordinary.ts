import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { z } from "zod";
import type { Endpoints } from "../support/clients.ts";

/** What ordinary clients do. `all`: post records, read them and check the health. `reads`: the same without posting. */
export type OrdinaryWork = "all" | "reads";

/** What ordinary clients have observed. */
const outcome = z.object({
	count: z.number(),
	slowest: z.object({ what: z.string(), milliseconds: z.number() }),
	probeWork: z.number(),
	problems: z.array(z.string()),
});

/** Clients with ordinary requests. They have their own thread, so that the load of a test does not delay them. */
export class OrdinaryClients {
	readonly #worker: Worker;
	/** Rejects with the worker's error. `once` would miss an error that comes between two waits. */
	readonly #failed: Promise<never>;

	private constructor(worker: Worker) {
		this.#worker = worker;
		this.#failed = new Promise((_, reject) => worker.once("error", reject));
		this.#failed.catch(() => undefined);
	}

	/**
	 * Starts the clients and waits until they have begun.
	 *
	 * @param service its process id is that of this process if it has none
	 */
	static async start(
		{ http, grpc, pid = process.pid }: Endpoints & { readonly pid?: number },
		key: string,
		work: OrdinaryWork,
	): Promise<OrdinaryClients> {
		const worker = new Worker(new URL("./ordinary-worker.ts", import.meta.url), {
			workerData: { http, grpc, pid, key, work },
		});
		const clients = new OrdinaryClients(worker);
		await Promise.race([once(worker, "message"), clients.#failed]);
		return clients;
	}

	/** Stops the clients and returns what they have observed. */
	async stop(): Promise<z.output<typeof outcome>> {
		const answered = once(this.#worker, "message");
		this.#worker.postMessage("stop");
		const [message] = await Promise.race([answered, this.#failed]);
		await this.#worker.terminate();
		return outcome.parse(message);
	}
}
