import { parentPort, workerData } from "node:worker_threads";
import { mapDense, pack, release, transferOf, unpack } from "./bytes.ts";
import { failureOf } from "./failure.ts";
import type { Answer, Batch, Received, WorkerMessage } from "./messages.ts";

/** What a worker does with the batches that it is sent. */
export interface Worker<Request> {
	/**
	 * Posts one answer for each request, in order. It may post them in groups. The bytes of the requests are gone when it
	 * returns.
	 */
	answer(requests: readonly Received<Request>[], post: (answers: readonly Answer[]) => void): void;
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
	port.on("message", ({ requests, packed }: Batch<Request>) => {
		const lists = unpack(packed);
		const received = requests.map((request, index) => ({ request, parts: lists[index] ?? [] }));
		worker.answer(received, (answers) => {
			const answered = pack(answers.map(({ parts = [] }) => parts));
			const outcomes = mapDense(answers, (answer) =>
				"failure" in answer ? { failure: answer.failure } : { value: answer.value },
			);
			post({ kind: "answers", outcomes, packed: answered }, transferOf(answered));
		});
		release(packed);
		if (requests.some((request) => request.kind === "close")) port.close();
	});
	post({ kind: "ready" });
}
