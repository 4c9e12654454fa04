import { parentPort, workerData } from "node:worker_threads";
import { release, transferOf } from "./bytes.ts";
import { failureOf } from "./failure.ts";
import type { Answer, Batch, WorkerMessage } from "./messages.ts";

/** What a worker does with the batches that it is sent. */
export interface Worker<Request> {
	/**
	 * Posts one answer for each request of a batch, in order. It may post them in parts. The bytes of the batch are gone
	 * when it returns.
	 */
	answer(batch: Batch<Request>, post: (answers: readonly Answer[]) => void): void;
}

/**
 * Runs a worker thread: `start` makes the worker from the thread's `workerData`, whose type the main thread vouches
 * for. Reports whether that worked, then answers batches until one holds a `close` request.
 */
export function serve<Options, Request extends { readonly kind: string }>(
	start: (options: Options) => Worker<Request>,
): void {
	if (parentPort === null) throw new Error("this module runs in a worker thread only");
	const port = parentPort;
	const post = (message: WorkerMessage, transfer: ArrayBuffer[] = []) => port.postMessage(message, transfer);

	let worker: Worker<Request>;
	try {
		worker = start(workerData);
	} catch (error) {
		post({ kind: "failed", failure: failureOf(error) });
		return;
	}
	port.on("message", (batch: Batch<Request>) => {
		worker.answer(batch, (answers) => {
			const transfer = answers.flatMap((answer) =>
				"packed" in answer && answer.packed !== undefined ? transferOf(answer.packed) : [],
			);
			post({ kind: "answers", answers }, transfer);
		});
		release(batch.packed);
		if (batch.requests.some((request) => request.kind === "close")) port.close();
	});
	post({ kind: "ready" });
}
