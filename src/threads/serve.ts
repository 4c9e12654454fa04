import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { release } from "../memory.ts";
import {
	type AnsweredGroup,
	byteStringsIn,
	type CallMessage,
	CLOSE,
	failureOf,
	largeBuffers,
	type Outcome,
	type WorkerMessage,
} from "./protocol.ts";

/** Milliseconds for which outcomes are collected before they are posted in one message. */
const POST_INTERVAL = 0.5;
/** Number of received calls at which the worker stops taking messages from the port and answers the calls. */
const MAX_CALLS = 256;

interface CallHandlers<Argument> {
	/** A method may return a promise: the calls after it wait. */
	readonly methods: Readonly<Record<string, (argument: never) => unknown>>;
	/** Calls that are answered together when several wait, for example in one transaction. */
	readonly group?: CallGroup<Argument>;
	readonly background?: Background;
	readonly close?: () => void | Promise<void>;
}

export interface Background {
	/** Called after calls were answered. Calls `start` when the work is to begin. */
	afterCalls(start: () => void): void;
	/**
	 * Does a part of the work. Calls that wait come before the next part.
	 *
	 * @returns the milliseconds between this part and the next one while calls arrive; undefined when there is no more to do
	 */
	run(): Promise<number | undefined>;
}

type Method = { call(argument: unknown): unknown }["call"];

// Declared as methods, whose parameters are bivariant: the calling thread ensures the types of the arguments.
interface CallGroup<Argument> {
	readonly names: readonly string[];
	/** Maximum number of bytes of a group. A single call may exceed it. */
	readonly maxBytes: number;
	bytesOf(argument: Argument): number;
	/** Answers the calls. The outcomes are in the order of the arguments. */
	answer(args: readonly Argument[]): Promise<Outcome[]>;
}

/**
 * Runs a worker thread. Calls `start` with the thread's `workerData`; an error of it ends the thread. Then answers calls in their order until it is
 * closed. The memory of the byte strings in an argument is released when the call has been answered.
 */
export function serve<Data, Argument = never>(start: (data: Data) => CallHandlers<Argument>): void {
	if (parentPort === null) throw new Error("this module runs in a worker thread only");
	const port = parentPort;
	// The buffers can be transferred, because this thread does not use its results afterwards.
	const post = (message: WorkerMessage) => port.postMessage(message, largeBuffers(message.outcomes));

	const handlers = start(workerData);
	const methods: Record<string, Method> = { ...handlers.methods, [CLOSE]: () => handlers.close?.() };
	const group: CallGroup<unknown> | undefined = handlers.group;
	const { background } = handlers;

	// Calls are answered in their order, one after the other.
	let answering: Promise<void> = Promise.resolve();
	/** Whether a call arrived after the last part of the background work. */
	let isCalled = false;
	port.on("message", (first: readonly CallMessage[]) => {
		isCalled = true;
		answering = answering.then(() => answerAll(takeWaiting(first)));
	});
	let isClosed = false;
	let isInBackground = false;
	/** Whether background work is to begin again when the present one has ended. */
	let isDueAgain = false;

	/** Begins the background work after the calls that wait, once more after the present one if that is under way. */
	function startBackground(background: Background): void {
		isDueAgain = isInBackground;
		if (!isInBackground) runBackground(background);
	}

	function runBackground(background: Background): void {
		isInBackground = true;
		answering = answering.then(async () => {
			// A failure concerns the next call that needs the work, which does it again.
			const pause = isClosed ? undefined : await background.run().catch(() => undefined);
			isInBackground = pause !== undefined || isDueAgain;
			if (pause === undefined) isDueAgain = false;
			if (isInBackground) setTimeout(runBackground, isCalled ? pause : 0, background).unref();
			isCalled = false;
		});
	}

	post({ outcomes: [], groups: [] });

	async function answerAll(calls: readonly CallMessage[]): Promise<void> {
		let message: WorkerMessage = { outcomes: [], groups: [] };
		let since = performance.now();
		let posted = 0;
		for (let next = 0; next < calls.length; ) {
			const size = group === undefined ? 1 : sizeOfGroup(calls, next, group);
			const taken = calls.slice(next, next + size);
			next += size;
			const answers = await answer(taken, message.groups);
			message.outcomes.push(...taken.map(({ id }, index) => ({ id, ...(answers[index] ?? NO_OUTCOME) })));
			if (next < calls.length && performance.now() - since < POST_INTERVAL) continue;
			post(message);
			// After the message, because a result can be a byte string of the argument.
			for (const { argument } of calls.slice(posted, next)) for (const bytes of byteStringsIn(argument)) release(bytes);
			message = { outcomes: [], groups: [] };
			since = performance.now();
			posted = next;
		}
		if (calls.some(({ name }) => name === CLOSE)) {
			isClosed = true;
			port.close();
		} else if (background !== undefined) background.afterCalls(() => startBackground(background));
	}

	function takeWaiting(first: readonly CallMessage[]): CallMessage[] {
		const calls = [...first];
		while (calls.length < MAX_CALLS) {
			const waiting: { message: readonly CallMessage[] } | undefined = receiveMessageOnPort(port);
			if (waiting === undefined) break;
			calls.push(...waiting.message);
		}
		return calls;
	}

	/** Answers a single call, or calls of the group, of which it adds a report to `groups`. */
	async function answer(calls: readonly CallMessage[], groups: AnsweredGroup[]): Promise<readonly Outcome[]> {
		const { name = "", argument } = calls[0] ?? {};
		try {
			if (group?.names.includes(name)) {
				const began = performance.now();
				const outcomes = await group.answer(calls.map((call) => call.argument));
				groups.push({ size: calls.length, duration: performance.now() - began });
				return outcomes;
			}
			const method = methods[name];
			if (method === undefined) throw new TypeError(`the worker has no method ${name}`);
			return [{ value: await method(argument) }];
		} catch (error) {
			const failure = failureOf(error);
			return calls.map(() => ({ failure }));
		}
	}
}

const NO_OUTCOME: Outcome = { failure: failureOf(new TypeError("the worker returned no outcome for the call")) };

/** Returns how many calls from `start` on are answered together: as many as the group may have, or a single call. */
function sizeOfGroup(calls: readonly CallMessage[], start: number, group: CallGroup<unknown>): number {
	let bytes = 0;
	let size = 0;
	for (const { name, argument } of calls.slice(start)) {
		if (!group.names.includes(name)) break;
		bytes += group.bytesOf(argument);
		if (size > 0 && bytes > group.maxBytes) break;
		size += 1;
	}
	return Math.max(size, 1);
}
