import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { ServiceError } from "../errors.ts";
import { type Failure, failureOf, refusalOf } from "./failure.ts";
import type { Answer, AnsweredGroup, Argument, CallMessage, CallName, Calls, WorkerMessage } from "./protocol.ts";

/** The part of a logger that a thread needs. */
export interface ThreadLog {
	error(fields: object, message: string): void;
}

/** Is told of threads and of the calls to them. */
export interface ThreadObserver {
	/** There is a thread, started or not. */
	added(name: string, queue: () => ThreadQueue): void;
	/**
	 * A call is made. What is given back is called once, when the call has ended: with what it failed with, and with the
	 * group that it was answered in.
	 */
	called(thread: string, call: string): CallEnd | undefined;
	/** Calls were answered together. */
	grouped(thread: string, group: AnsweredGroup): void;
}

export type CallEnd = (error: unknown, group?: AnsweredGroup) => void;

/** The calls that a thread has not answered. */
export interface ThreadQueue {
	readonly calls: number;
	/** Milliseconds since the oldest of them was made; 0 without any. */
	readonly age: number;
}

export interface WorkerThreadOptions {
	/** Part of the service that the thread belongs to, as clients and the log call it: `the store`. */
	readonly owner: string;
	/** What the thread does in it: `writer`. */
	readonly name: string;
	/** Module of the worker, without the extension, which is that of this module: `.ts` in src, `.js` in dist. */
	readonly script: URL;
	/** What the worker is started with; it is cloned. */
	readonly data: unknown;
	/** Maps a failure that is no {@link ServiceError} of the worker: that of a call, or of the whole thread. */
	readonly toError: (failure: Failure, of: "call" | "thread") => ServiceError;
	readonly log: ThreadLog;
	/** Largest young generation of the thread's heap, in MiB. */
	readonly youngGenerationMb: number;
	/** Largest old generation of the thread's heap, in MiB; V8's default when left out. Beyond it the thread ends. */
	readonly oldGenerationMb?: number;
	/**
	 * Whether calls that were under way when the thread ended are made again, one at a time. Only for calls that change
	 * nothing.
	 */
	readonly repeatable: boolean;
	/**
	 * Most calls that the worker has at a time, so that its answers do not gather; the others wait outside of it. As many
	 * as there are when left out.
	 */
	readonly window?: number;
	readonly observer?: ThreadObserver | undefined;
}

/** Tells whether the caller waits no longer. An AbortSignal does. */
type CallerSignal = Pick<AbortSignal, "aborted">;

/** A call that waits for its outcome. */
interface PendingCall {
	readonly message: CallMessage;
	/** Cleared when the call is sent: V8 keeps sent calls in memory for a while, and a signal keeps a whole request. */
	signal: CallerSignal | undefined;
	/** When it was made, as performance.now() counts. */
	readonly since: number;
	readonly ended: CallEnd | undefined;
	// Declared as a method, so that a caller can await the type of its own answer.
	resolve(value: unknown): void;
	reject(error: unknown): void;
}

/**
 * A worker thread and the calls on their way to it. The worker takes all that wait at a time.
 *
 * A thread that ends unasked is started again by the next call. When its calls are repeatable, those that were under way
 * are made again, each alone: the one that ends the thread again fails as `internal`, the others succeed. Calls that are
 * not repeatable fail.
 */
export class WorkerThread<Methods extends Calls> {
	readonly #options: WorkerThreadOptions;
	#worker: Worker | undefined;
	#starting: Promise<void> | undefined;
	/** Calls that the worker has not been sent. */
	#waiting: PendingCall[] = [];
	/** Calls that are made alone, because one of them may have ended the thread. */
	#suspects: PendingCall[] = [];
	readonly #sent = new Map<number, PendingCall>();
	#lastId = 0;
	#sendsSuspect = false;
	#scheduled = false;
	#refusing = false;
	#closing: Promise<void> | undefined;
	/** Resolves when the thread has ended. */
	#ended: Promise<void> = Promise.resolve();

	constructor(options: WorkerThreadOptions) {
		this.#options = options;
		options.observer?.added(options.name, () => this.queue);
	}

	/** What has no answer yet. */
	get queue(): ThreadQueue {
		const pending = [...this.#sent.values(), ...this.#suspects, ...this.#waiting];
		const oldest = pending.reduce((since, call) => Math.min(since, call.since), Number.POSITIVE_INFINITY);
		return { calls: pending.length, age: pending.length === 0 ? 0 : performance.now() - oldest };
	}

	/**
	 * Makes a call. The argument may not change until its answer is there.
	 *
	 * @param signal a call that has not been sent to the worker when it has fired is not made
	 * @throws ServiceError what the worker threw, or what `toError` makes of its failure; `unavailable` after `close`
	 *   and when the signal has fired
	 */
	call<Name extends CallName<Methods>>(
		name: Name,
		argument: Argument<Methods[Name]>,
		signal?: CallerSignal,
	): Promise<Answer<Methods[Name]>> {
		if (this.#refusing) return Promise.reject(new ServiceError("unavailable", `${this.#options.owner} is closed`));
		return this.#enqueue(name, argument, signal);
	}

	/** Starts the thread. Resolves when it takes calls. */
	start(): Promise<void> {
		this.#starting ??= this.#spawn();
		return this.#starting;
	}

	/** Refuses further calls. */
	refuse(): void {
		this.#refusing = true;
	}

	/** Refuses further calls, lets the others finish, and ends the thread. A failure at it is logged, not thrown. */
	close(): Promise<void> {
		this.#refusing = true;
		this.#closing ??=
			this.#starting === undefined
				? Promise.resolve()
				: this.#enqueue("close", undefined)
						.catch(() => undefined)
						.then(() => this.#ended);
		return this.#closing;
	}

	#enqueue<Value>(name: string, argument: unknown, signal?: CallerSignal): Promise<Value> {
		const ended = this.#options.observer?.called(this.#options.name, name);
		return new Promise((resolve, reject) => {
			this.#lastId += 1;
			const message = { id: this.#lastId, name, argument };
			this.#waiting.push({ message, signal, since: performance.now(), ended, resolve, reject });
			this.#schedule();
		});
	}

	/** Sends what waits at the end of the event loop's turn, so that calls of one turn travel in one message. */
	#schedule(): void {
		if (this.#scheduled) return;
		this.#scheduled = true;
		setImmediate(() => {
			this.#scheduled = false;
			if (this.#worker !== undefined) this.#send(this.#worker);
			else this.start().catch((error: unknown) => this.#rejectAll(error));
		});
	}

	#send(worker: Worker): void {
		if (this.#sendsSuspect && this.#sent.size > 0) return;
		const suspect = this.#suspects.shift();
		this.#sendsSuspect = suspect !== undefined;
		const calls = suspect === undefined ? this.#takeWaiting() : [suspect];
		if (calls.length === 0) return;
		for (const call of calls) {
			call.signal = undefined;
			this.#sent.set(call.message.id, call);
		}
		worker.postMessage(calls.map(({ message }) => message));
	}

	/** The waiting calls that the worker may have, without those that nobody waits for. */
	#takeWaiting(): PendingCall[] {
		const room = (this.#options.window ?? Number.POSITIVE_INFINITY) - this.#sent.size;
		const calls: PendingCall[] = [];
		let looked = 0;
		for (const call of this.#waiting) {
			if (calls.length >= room) break;
			looked += 1;
			if (call.signal?.aborted === true)
				refuse(call, new ServiceError("unavailable", "the sender no longer waits for the answer"));
			else calls.push(call);
		}
		this.#waiting.splice(0, looked);
		return calls;
	}

	#spawn(): Promise<void> {
		const { script, data, name, youngGenerationMb, oldGenerationMb } = this.#options;
		return new Promise((resolve, reject) => {
			const worker = new Worker(new URL(`${script.href}${extname(import.meta.url)}`), {
				workerData: data,
				name,
				resourceLimits: { maxYoungGenerationSizeMb: youngGenerationMb, maxOldGenerationSizeMb: oldGenerationMb },
			});
			this.#ended = new Promise((ended) => {
				worker.once("exit", () => ended());
			});
			let failed = false;
			const fail = (failure: Failure) => {
				if (failed) return;
				failed = true;
				const error = this.#options.toError(failure, "thread");
				reject(error);
				this.#onEnd(error);
			};
			worker.on("message", (message: WorkerMessage) => {
				switch (message.kind) {
					case "started":
						this.#worker = worker;
						resolve();
						return this.#send(worker);
					case "outcomes":
						this.#settle(message);
						return this.#send(worker);
					case "failed":
						return fail(message.failure);
				}
			});
			worker.on("error", (error) => fail(failureOf(error)));
			worker.on("exit", (code) => fail(failureOf(new Error(`the thread ended with code ${code}`))));
		});
	}

	#settle({ outcomes, groups }: WorkerMessage & { kind: "outcomes" }): void {
		const { observer, name } = this.#options;
		for (const group of groups) observer?.grouped(name, group);
		const failures = new Map<string, { error: ServiceError; operation: string; count: number }>();
		for (const outcome of outcomes) {
			const call = this.#sent.get(outcome.id);
			if (call === undefined) continue;
			this.#sent.delete(outcome.id);
			const group = call.ended && groups.find(({ ids }) => ids.includes(outcome.id));
			if ("value" in outcome) {
				call.ended?.(undefined, group);
				call.resolve(outcome.value);
				continue;
			}
			const refusal = refusalOf(outcome.failure);
			const error = refusal ?? this.#options.toError(outcome.failure, "call");
			call.ended?.(error, group);
			call.reject(error);
			if (refusal !== undefined) continue;
			const operation = call.message.name;
			const key = `${operation} ${outcome.failure.message}`;
			failures.set(key, { error, operation, count: (failures.get(key)?.count ?? 0) + 1 });
		}
		for (const { error, operation, count } of failures.values())
			this.#options.log.error({ err: error, operation, count }, `${this.#options.owner} failed`);
	}

	#onEnd(error: ServiceError): void {
		this.#worker = undefined;
		this.#starting = undefined;
		const sent = [...this.#sent.values()];
		this.#sent.clear();
		if (this.#closing !== undefined && sent.length + this.#waiting.length + this.#suspects.length === 0) return;
		const { owner, name, repeatable, log } = this.#options;
		log.error({ err: error, operation: name }, `a thread of ${owner} ended`);
		const [only] = sent;
		if (!repeatable || sent.length === 0) {
			for (const call of sent) refuse(call, error);
			this.#rejectAll(error);
			return;
		}
		if (sent.length === 1 && only !== undefined)
			refuse(only, new ServiceError("internal", `${owner} failed at this request`, { cause: error }));
		else this.#suspects.push(...sent);
		if (this.#suspects.length + this.#waiting.length === 0) return;
		this.start().catch((reason: unknown) => this.#rejectAll(reason));
	}

	#rejectAll(error: unknown): void {
		const reason = error instanceof ServiceError ? error : this.#options.toError(failureOf(error), "thread");
		for (const call of [...this.#suspects.splice(0), ...this.#waiting.splice(0)]) refuse(call, reason);
	}
}

function refuse(call: PendingCall, error: unknown): void {
	call.ended?.(error);
	call.reject(error);
}
