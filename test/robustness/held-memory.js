import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { getHeapStatistics } from "node:v8";
import { BroadcastChannel, isMainThread, threadId } from "node:worker_threads";

// Runs inside the program under test. With --import and --expose-gc, node loads this module into each thread before the
// program's own modules. The socket that HELD_MEMORY_SOCKET names accepts one connection at a time. To each it writes
// the number of bytes that all threads hold together after a garbage collection. The module is JavaScript, because for
// TypeScript node would load a compiler into each thread.

/**
 * Message from a worker thread to the main thread: the answer to a question, or at the thread's start a message with 0
 * bytes.
 *
 * @typedef {{ readonly thread: number, readonly bytes: number }} Answer
 */

/** Collects this thread's garbage and returns the remaining bytes: the heap, and external memory of objects on it. */
function collectAndMeasure() {
	globalThis.gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
	const { used_heap_size, external_memory } = getHeapStatistics();
	return used_heap_size + external_memory;
}

const questions = new BroadcastChannel("held-memory-questions");
const answers = new BroadcastChannel("held-memory-answers");
questions.unref();
answers.unref();

if (isMainThread) {
	/**
	 * Bytes that each worker thread holds. Undefined until the thread has answered the last question.
	 *
	 * @type {Map<number, number | undefined>}
	 */
	const workers = new Map();
	/** @type {((bytes: number) => void) | undefined} */
	let respond;
	const respondIfAllAnswered = () => {
		let sum = 0;
		for (const bytes of workers.values()) {
			if (bytes === undefined) return;
			sum += bytes;
		}
		respond?.(sum + collectAndMeasure());
		respond = undefined;
	};
	answers.onmessage = ({ data }) => {
		/** @type {Answer} */
		const { thread, bytes } = data;
		workers.set(thread, bytes);
		respondIfAllAnswered();
	};
	process.on("worker", (worker) => {
		const thread = worker.threadId;
		worker.once("exit", () => {
			workers.delete(thread);
			respondIfAllAnswered();
		});
	});
	const server = createServer((socket) => {
		for (const thread of workers.keys()) workers.set(thread, undefined);
		respond = (bytes) => socket.end(String(bytes));
		questions.postMessage(undefined);
		respondIfAllAnswered();
	});
	const path = process.env.HELD_MEMORY_SOCKET ?? "";
	// The program starts its process again, and the first one has left its socket.
	rmSync(path, { force: true });
	server.listen(path).unref();
} else {
	/** @param {number} bytes */
	const answer = (bytes) => {
		/** @type {Answer} */
		const message = { thread: threadId, bytes };
		answers.postMessage(message);
	};
	questions.onmessage = () => answer(collectAndMeasure());
	answer(0);
}
