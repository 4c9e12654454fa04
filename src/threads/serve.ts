import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { failureOf } from "./failure.ts";
import type { AnsweredGroup, Argument, CallMessage, CallName, Calls, Outcome, WorkerMessage } from "./protocol.ts";
import { largeBuffers } from "./protocol.ts";

/** Milliseconds for which outcomes are collected before they are posted in one message. */
const POST_INTERVAL = 0.5;
/** Number of received calls at which the worker stops taking messages from the port and answers the calls. */
const MAX_CALLS = 256;

/** The functions by which a worker answers its calls. */
export interface CallHandlers<Methods, GroupName extends CallName<Methods>> {
	readonly methods: Omit<Methods, GroupName>;
	/** Methods whose waiting calls are answered together, for example in one transaction. */
	readonly group?: CallGroup<Methods, GroupName>;
}

export interface CallGroup<Methods, Name extends CallName<Methods>> {
	readonly names: readonly Name[];
	/** Maximum number of bytes of a group. A single call may exceed it. */
	readonly maxBytes: number;
	bytesOf(argument: Argument<Methods[Name]>): number;
	/** Answers the calls. The outcomes are in the order of the arguments. */
	answer(args: readonly Argument<Methods[Name]>[]): Outcome[];
}

// Declared as methods, whose parameters are bivariant: the calling thread ensures the types of the arguments.
interface AnyGroup {
	readonly names: readonly string[];
	readonly maxBytes: number;
	bytesOf(argument: unknown): number;
	answer(args: readonly unknown[]): Outcome[];
}
type AnyMethod = (argument: unknown) => unknown;

/**
 * Runs a worker thread. Calls `start` with the thread's `workerData`. Then answers calls in their order until it has
 * answered `close`.
 */
export function serve<Options, Methods extends Calls, GroupName extends CallName<Methods> = never>(
	start: (options: Options) => CallHandlers<Methods, GroupName>,
): void {
	if (parentPort === null) throw new Error("this module runs in a worker thread only");
	const port = parentPort;
	// The buffers can be transferred, because this thread does not use its results afterwards.
	const post = (message: WorkerMessage) =>
		port.postMessage(message, message.kind === "outcomes" ? largeBuffers(message.outcomes) : []);

	let handlers: CallHandlers<Methods, GroupName>;
	try {
		handlers = start(workerData);
	} catch (error) {
		post({ kind: "failed", failure: failureOf(error) });
		return;
	}
	const methods = methodsOf(handlers.methods);
	const group: AnyGroup | undefined = handlers.group;

	port.on("message", (first: readonly CallMessage[]) => {
		const calls = takeWaiting(first);
		let outcomes: (Outcome & { id: number })[] = [];
		let groups: AnsweredGroup[] = [];
		let since = performance.now();
		for (let next = 0; next < calls.length; ) {
			const taken = group === undefined ? calls.slice(next, next + 1) : takeGroup(calls, next, group);
			next += taken.length;
			const [call] = taken;
			if (call === undefined) break;
			const grouped = group?.names.includes(call.name) ? answerGroup(group, taken) : undefined;
			const answers = grouped?.outcomes ?? [answer(call)];
			if (grouped !== undefined) groups.push(grouped.group);
			outcomes.push(...taken.map(({ id }, index) => ({ id, ...(answers[index] ?? unanswered()) })));
			if (next < calls.length && performance.now() - since < POST_INTERVAL) continue;
			post({ kind: "outcomes", outcomes, groups });
			outcomes = [];
			groups = [];
			since = performance.now();
		}
		if (calls.some(({ name }) => name === "close")) port.close();
	});
	post({ kind: "started" });

	function takeWaiting(first: readonly CallMessage[]): CallMessage[] {
		const calls = [...first];
		while (calls.length < MAX_CALLS) {
			const waiting: { message: readonly CallMessage[] } | undefined = receiveMessageOnPort(port);
			if (waiting === undefined) break;
			calls.push(...waiting.message);
		}
		return calls;
	}

	function answer({ name, argument }: CallMessage): Outcome {
		try {
			const method = methods.get(name);
			if (method === undefined) throw new TypeError(`the worker has no method ${name}`);
			return { value: method(argument) };
		} catch (error) {
			return { failure: failureOf(error) };
		}
	}
}

/** Returns the calls from `start` on that are answered together: as many as the group may have, or a single call. */
function takeGroup(calls: readonly CallMessage[], start: number, group: AnyGroup): readonly CallMessage[] {
	let end = start;
	let bytes = 0;
	for (const { name, argument } of calls.slice(start)) {
		if (!group.names.includes(name)) break;
		bytes += group.bytesOf(argument);
		if (end > start && bytes > group.maxBytes) break;
		end += 1;
	}
	return calls.slice(start, Math.max(end, start + 1));
}

function methodsOf(methods: object): ReadonlyMap<string, AnyMethod> {
	return new Map(Object.entries(methods));
}

function answerGroup(group: AnyGroup, calls: readonly CallMessage[]): { outcomes: Outcome[]; group: AnsweredGroup } {
	const began = performance.now();
	let outcomes: Outcome[];
	try {
		outcomes = group.answer(calls.map(({ argument }) => argument));
	} catch (error) {
		outcomes = calls.map(() => ({ failure: failureOf(error) }));
	}
	const duration = performance.now() - began;
	return { outcomes, group: { ids: calls.map(({ id }) => id), startedAt: performance.timeOrigin + began, duration } };
}

function unanswered(): Outcome {
	return { failure: failureOf(new TypeError("the worker returned no outcome for the call")) };
}
