import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { type CallSignal, isSenderGone, SENDER_GONE, ServiceError } from "../errors.ts";
import {
	type AnsweredGroup,
	type CallMessage,
	type Calls,
	CLOSE,
	type Failure,
	failureOf,
	refusalOf,
	type WorkerMessage,
} from "./protocol.ts";

export interface ThreadLogger {
	error(fields: object, message: string): void;
}

export interface ThreadObserver {
	/** Reports a new thread, which need not have started. */
	onThread(name: string, queue: () => ThreadQueue): void;
	onGroup(group: AnsweredGroup): void;
}

/** The calls that a thread has not answered yet. */
export interface ThreadQueue {
	readonly calls: number;
	/** Milliseconds since the oldest of them was made; 0 when there are none. */
	readonly age: number;
}

export interface WorkerThreadOptions {
	/** Component that the thread belongs to, as error messages and the log name it: `the store`. */
	readonly owner: string;
	/** Role of the thread in the component: `writer`. */
	readonly name: string;
	/** Module of the worker without its extension, which is the same as this module's: `.ts` in src, `.js` in dist. */
	readonly script: URL;
	/** `workerData` of the worker; it is cloned. */
	readonly data: unknown;
	/** Maps a failure of a call or of the whole thread, unless the worker threw a {@link ServiceError}. */
	readonly toError: (failure: Failure, of: "call" | "thread") => ServiceError;
	readonly log: ThreadLogger;
	/** Maximum size of the young generation of the thread's heap, in MiB. */
	readonly youngGenerationMiB: number;
	/** Maximum size of the old generation, in MiB; V8's default when left out. A thread that exceeds it ends. */
	readonly oldGenerationMiB?: number;
	/** Milliseconds without a call after which the thread ends, until the next call; never when left out. */
	readonly idleMilliseconds?: number;
	/**
	 * Maximum number of calls that the worker has at a time; unlimited when left out. Further calls wait in this thread,
	 * so that results do not accumulate.
	 */
	readonly maxCallsSent?: number;
	/**
	 * Number of calls that the worker should have to answer together. When given, calls wait in this thread until the worker has
	 * answered all that it has, and then until there are so many or a turn of the event loop brings no further one: a call that
	 * is alone waits for one turn more.
	 */
	readonly sendsTogether?: number;
	/**
	 * Names of calls that take the worker longer than this thread, so that it should not have to wait for them: if enough calls
	 * wait, of which the newest has such a name, they are sent before answers are handled, and of at least twice as many only
	 * half. Default: none. With other calls the callers get their answers first.
	 */
	readonly sentAhead?: readonly string[];
	readonly observer?: ThreadObserver | undefined;
}

interface PendingCall {
	readonly message: CallMessage;
	/** Cleared when the call is sent: V8 keeps sent calls in memory for a while, and a signal keeps its whole request. */
	signal: CallSignal | undefined;
	readonly since: number;
	// Declared as methods, whose parameters are bivariant, so that each call can have a result type of its own.
	resolve(value: unknown): void;
	reject(error: unknown): void;
}

/**
 * A worker thread and the calls to it. The worker receives all waiting calls at once. `Methods` are the methods that its
 * module passes to `serve`.
 *
 * When a thread ends unexpectedly, the calls that it had fail, because one of them may have ended it. Those that wait, or
 * the next call, start it again.
 */
export class WorkerThread<Methods> {
	/**
	 * The calls. An argument must not change before the result arrives. A call rejects with the ServiceError that the
	 * worker threw or that `toError` returns, or with `unavailable` after `refuse` or `close`, or when its signal canceled
	 * it.
	 */
	readonly calls: Calls<Methods> = callsBy((name, argument, signal) => this.#call(name, argument, signal));
	readonly #options: WorkerThreadOptions;
	#worker: Worker | undefined;
	#starting: Promise<void> | undefined;
	#waiting: PendingCall[] = [];
	readonly #sent = new Map<number, PendingCall>();
	#lastId = 0;
	#idleTimer: NodeJS.Timeout | undefined;
	#scheduled = false;
	/** The names of calls that are not refused; undefined while none is. */
	#admitted: readonly string[] | undefined;
	#closing: Promise<void> | undefined;
	#ended: Promise<void> = Promise.resolve();

	constructor(options: WorkerThreadOptions) {
		this.#options = options;
		options.observer?.onThread(options.name, () => this.queue);
	}

	get queue(): ThreadQueue {
		const pending = [...this.#sent.values(), ...this.#waiting];
		const oldest = pending.reduce((since, call) => Math.min(since, call.since), Number.POSITIVE_INFINITY);
		return { calls: pending.length, age: pending.length === 0 ? 0 : performance.now() - oldest };
	}

	/** Starts the thread, as the first call does. Resolves when it accepts calls. */
	start(): Promise<void> {
		this.#starting ??= this.#spawn();
		return this.#starting;
	}

	/** Rejects further calls, except those with some names until the thread is closed. */
	refuse(except: readonly string[] = []): void {
		this.#admitted = except;
	}

	/** Rejects further calls, lets the others finish, and ends the thread. A failure is logged, not thrown. */
	close(): Promise<void> {
		this.refuse();
		this.#closing ??=
			this.#starting === undefined
				? this.#ended
				: this.#enqueue(CLOSE, undefined)
						.catch(() => undefined)
						.then(() => this.#ended);
		return this.#closing;
	}

	#call(name: string, argument: unknown, signal: CallSignal | undefined): Promise<unknown> {
		if (this.#admitted?.includes(name) === false)
			return Promise.reject(new ServiceError("unavailable", `${this.#options.owner} is closed`));
		return this.#enqueue(name, argument, signal);
	}

	#enqueue(name: string, argument: unknown, signal?: CallSignal): Promise<unknown> {
		return new Promise((resolve, reject) => {
			this.#lastId += 1;
			const message = { id: this.#lastId, name, argument };
			this.#waiting.push({ message, signal, since: performance.now(), resolve, reject });
			this.#schedule();
		});
	}

	/**
	 * Sends the waiting calls at the end of this turn of the event loop, so that calls of one turn share a message, or later: see
	 * {@link WorkerThreadOptions.sendsTogether}.
	 */
	#schedule(): void {
		if (this.#scheduled || this.#waiting.length === 0) return;
		this.#scheduled = true;
		const { sendsTogether = 0 } = this.#options;
		let before = 0;
		const onTurn = () => {
			const count = this.#waiting.length;
			if (count < sendsTogether && count > before) {
				before = count;
				setImmediate(onTurn);
				return;
			}
			this.#scheduled = false;
			if (count === 0) return;
			if (this.#worker !== undefined) this.#send(this.#worker);
			else this.start().catch((error: unknown) => this.#rejectAll(error));
		};
		setImmediate(onTurn);
	}

	/** Returns whether enough calls wait for so many messages, and are sent before answers are handled. */
	#sendsAhead(messages: number): boolean {
		const { sendsTogether = Number.POSITIVE_INFINITY, sentAhead = [] } = this.#options;
		if (this.#waiting.length < messages * sendsTogether) return false;
		return sentAhead.includes(this.#waiting.at(-1)?.message.name ?? "");
	}

	/** Sends waiting calls, as many as the worker may have. Rejects those whose caller no longer waits. */
	#send(worker: Worker): void {
		const { sendsTogether, maxCallsSent = Number.POSITIVE_INFINITY } = this.#options;
		if (sendsTogether !== undefined && this.#sent.size > 0) return;
		const messages: CallMessage[] = [];
		let examined = 0;
		const most = this.#sendsAhead(2) ? Math.min(maxCallsSent, Math.ceil(this.#waiting.length / 2)) : maxCallsSent;
		for (const call of this.#waiting) {
			if (this.#sent.size >= most) break;
			examined += 1;
			if (isSenderGone(call.signal)) call.reject(SENDER_GONE);
			else {
				call.signal = undefined;
				this.#sent.set(call.message.id, call);
				messages.push(call.message);
			}
		}
		this.#waiting.splice(0, examined);
		if (messages.length > 0) worker.postMessage(messages);
	}

	#spawn(): Promise<void> {
		const { script, data, name, youngGenerationMiB, oldGenerationMiB, idleMilliseconds } = this.#options;
		return new Promise((resolve, reject) => {
			const worker = new Worker(new URL(`${script.href}${extname(import.meta.url)}`), {
				workerData: data,
				name,
				resourceLimits: { maxYoungGenerationSizeMb: youngGenerationMiB, maxOldGenerationSizeMb: oldGenerationMiB },
			});
			this.#ended = new Promise((ended) => {
				worker.once("exit", () => ended());
			});
			let started = false;
			let failed = false;
			const fail = (cause: Error) => {
				// A thread that ended because it was idle is not the present one.
				if (failed || (started && this.#worker !== worker)) return;
				failed = true;
				const error = this.#options.toError(failureOf(cause), "thread");
				reject(error);
				this.#onEnd(error, started);
			};
			worker.once("message", () => {
				started = true;
				this.#worker = worker;
				if (idleMilliseconds !== undefined)
					this.#idleTimer = setTimeout(() => this.#endIfIdle(), idleMilliseconds).unref();
				resolve();
				this.#send(worker);
				worker.on("message", (message: WorkerMessage) => {
					this.#settle(message);
					// The callers that were answered go on after this.
					if (this.#worker === worker && this.#sendsAhead(1)) this.#send(worker);
					else this.#schedule();
				});
			});
			worker.on("error", fail);
			worker.on("exit", (code) => fail(new Error(`the thread ended with code ${code}`)));
		});
	}

	#settle({ outcomes, groups }: WorkerMessage): void {
		const { observer, owner, toError, log } = this.#options;
		this.#idleTimer?.refresh();
		for (const group of groups) observer?.onGroup(group);
		for (const outcome of outcomes) {
			const call = this.#sent.get(outcome.id);
			if (call === undefined) continue;
			this.#sent.delete(outcome.id);
			if ("value" in outcome) {
				call.resolve(outcome.value);
				continue;
			}
			const refusal = refusalOf(outcome.failure);
			const error = refusal ?? toError(outcome.failure, "call");
			call.reject(error);
			if (refusal === undefined) log.error({ err: error, operation: call.message.name }, `${owner} failed`);
		}
	}

	#endIfIdle(): void {
		if (this.queue.calls > 0) this.#idleTimer?.refresh();
		else {
			void this.#worker?.terminate();
			this.#worker = undefined;
			this.#starting = undefined;
		}
	}

	#onEnd(error: ServiceError, hadStarted: boolean): void {
		clearTimeout(this.#idleTimer);
		this.#worker = undefined;
		this.#starting = undefined;
		const sent = [...this.#sent.values()];
		this.#sent.clear();
		if (this.#closing !== undefined && sent.length + this.#waiting.length === 0) return;
		const { owner, name, log } = this.#options;
		log.error({ err: error, operation: name }, `a worker thread of ${owner} ended unexpectedly`);
		for (const call of sent) call.reject(error);
		if (!hadStarted) this.#rejectAll(error);
		else if (this.#waiting.length > 0) this.start().catch((reason: unknown) => this.#rejectAll(reason));
	}

	#rejectAll(error: unknown): void {
		const reason = error instanceof ServiceError ? error : this.#options.toError(failureOf(error), "thread");
		for (const call of this.#waiting.splice(0)) call.reject(reason);
	}
}

/** Returns an object whose methods have any name and make calls of that name. The type says which exist. */
function callsBy<Methods>(
	call: (name: string, argument: unknown, signal: CallSignal | undefined) => Promise<unknown>,
): Calls<Methods> {
	const get = (_: object, name: string) => (argument: unknown, signal?: CallSignal) => call(name, argument, signal);
	return new Proxy({}, { get }) as Calls<Methods>;
}

/**
 * Returns calls with the same types and errors as those to a worker thread, which run in the calling thread at once.
 */
export function localCalls<Methods extends Readonly<Record<string, (argument: never) => unknown>>>(
	methods: Methods,
	options: Pick<WorkerThreadOptions, "owner" | "toError" | "log">,
): Calls<Methods> {
	const named: Record<string, { call(argument: unknown): unknown }["call"]> = methods;
	return callsBy(async (name, argument) => {
		try {
			return named[name]?.(argument);
		} catch (thrown) {
			if (thrown instanceof ServiceError) throw thrown;
			const error = options.toError(failureOf(thrown), "call");
			options.log.error({ err: error, operation: name }, `${options.owner} failed`);
			throw error;
		}
	});
}
