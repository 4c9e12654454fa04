import { createServer } from "node:net";
import { getHeapStatistics } from "node:v8";
import { BroadcastChannel, isMainThread, threadId } from "node:worker_threads";

// A part of the program under test: with --import and --expose-gc, node loads it into each thread before the program's
// own modules. To each connection with the socket that HELD_MEMORY_SOCKET names, one at a time, it writes how many bytes
// the threads hold together after each has collected its garbage. It is JavaScript, because node would load a compiler
// into each thread for TypeScript.

/**
 * What a worker thread tells the main thread when it is asked; with 0 it tells at its start that it is there.
 *
 * @typedef {{ readonly thread: number, readonly bytes: number }} Told
 */

/** Collects the garbage of this thread; gives the bytes that are left, on its heap and outside for what is on it. */
function held() {
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
	 * What the worker threads hold; undefined until they have answered the last question.
	 *
	 * @type {Map<number, number | undefined>}
	 */
	const workers = new Map();
	/** @type {((bytes: number) => void) | undefined} */
	let tell;
	const tellIfAllAnswered = () => {
		let sum = 0;
		for (const bytes of workers.values()) {
			if (bytes === undefined) return;
			sum += bytes;
		}
		tell?.(sum + held());
		tell = undefined;
	};
	answers.onmessage = ({ data }) => {
		/** @type {Told} */
		const { thread, bytes } = data;
		workers.set(thread, bytes);
		tellIfAllAnswered();
	};
	process.on("worker", (worker) => {
		const thread = worker.threadId;
		worker.once("exit", () => {
			workers.delete(thread);
			tellIfAllAnswered();
		});
	});
	const server = createServer((socket) => {
		for (const thread of workers.keys()) workers.set(thread, undefined);
		tell = (bytes) => socket.end(String(bytes));
		questions.postMessage(undefined);
		tellIfAllAnswered();
	});
	server.listen(process.env.HELD_MEMORY_SOCKET).unref();
} else {
	/** @param {number} bytes */
	const answer = (bytes) => {
		/** @type {Told} */
		const told = { thread: threadId, bytes };
		answers.postMessage(told);
	};
	questions.onmessage = () => answer(held());
	answer(0);
}
