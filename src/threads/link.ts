import { Worker } from "node:worker_threads";
import type { Logger } from "pino";
import { ServiceError } from "../errors.ts";
import { mapDense, type Packed, pack, transferOf, unpack } from "./bytes.ts";
import { type Failure, failureOf } from "./failure.ts";
import type { Outcome, WorkerMessage } from "./messages.ts";

/** The part of a logger that a link needs. */
export type LinkLog = Pick<Logger, "error" | "warn" | "info">;

/** A worker and what to call it. */
export interface LinkOptions {
	/** What the worker is a part of, as messages to clients and the log call it: `the store`. */
	readonly whole: string;
	/** What the worker does in it. */
	readonly name: string;
	/** Module of the worker. */
	readonly script: URL;
	/** What the worker's `start` is given. */
	readonly data: unknown;
	/** The error that callers get for a failure. */
	readonly toError: (failure: Failure) => ServiceError;
	readonly log: LinkLog;
	/** Most requests in one message to the worker. 256 when left out. */
	readonly batch?: number;
	/** Most bytes of the requests in one message to the worker, if there are several. 8 MiB when left out. */
	readonly batchBytes?: number;
	/**
	 * Requests that may be under way when further ones are sent: 0, the default, gathers everything that comes while
	 * the worker is busy; more than that keeps the worker from waiting for its next message.
	 */
	readonly ahead?: number;
	/** Most memory of the worker for objects that are young, in MiB. 24 when left out. */
	readonly youngGeneration?: number;
}

/** Bounds of one message to a worker, so that neither memory nor the wait of its first request grows without end. */
const maxBatchRequests = 256;
const maxBatchBytes = 8 * 2 ** 20;

/** A request that waits for its answer. */
interface Pending<Request> {
	readonly request: Request;
	readonly parts: readonly Uint8Array[];
	readonly size: number;
	// As a method, so that each caller can await the type that its own request is answered with.
	settle(value: unknown, parts: readonly Uint8Array[]): void;
	reject(error: unknown): void;
}

/**
 * A worker thread and the requests on their way to it. Requests that come while the worker is busy travel together
 * as its next batch. A worker that ends unasked fails everything that it was sent, and the next request starts
 * another one.
 */
export class Link<Request extends { readonly kind: string }> {
	readonly #options: LinkOptions;
	#worker: Worker | undefined;
	#starting: Promise<void> | undefined;
	#waiting: Pending<Request>[] = [];
	#sent: Pending<Request>[] = [];
	#scheduled = false;
	#refusing = false;
	#closing: Promise<void> | undefined;
	/** Resolves when no thread is left. */
	#gone: Promise<void> = Promise.resolve();

	constructor(options: LinkOptions) {
		this.#options = options;
	}

	/**
	 * Sends a request. `parts` are byte strings that belong to it; they may not change until the answer is there.
	 * Resolves with what `read` makes of the answer, whose type follows from the kind of the request.
	 *
	 * @throws ServiceError `unavailable` when the request failed or the link is closed; what `read` throws.
	 */
	send<Value, Result>(
		request: Request,
		read: (value: Value, parts: readonly Uint8Array[]) => Result,
		parts: readonly Uint8Array[] = [],
	): Promise<Result> {
		if (this.#refusing) return Promise.reject(new ServiceError("unavailable", `${this.#options.whole} is closed`));
		return this.#enqueue(request, read, parts);
	}

	/** Starts the worker. Resolves when it can take requests. */
	start(): Promise<void> {
		this.#starting ??= this.#spawn();
		return this.#starting;
	}

	/** Refuses further requests. */
	refuse(): void {
		this.#refusing = true;
	}

	/**
	 * Ends the worker after what was sent before, by a request of kind `close`. Further requests are refused. Resolves
	 * when its thread has ended, even if the worker fails at it: the log has it then, and the write-ahead log keeps every
	 * commit.
	 */
	close(request: Request): Promise<void> {
		this.#refusing = true;
		this.#closing ??=
			this.#starting === undefined
				? Promise.resolve()
				: this.#enqueue(request, () => undefined, [])
						.catch(() => undefined)
						.then(() => this.#gone);
		return this.#closing;
	}

	#enqueue<Value, Result>(
		request: Request,
		read: (value: Value, parts: readonly Uint8Array[]) => Result,
		parts: readonly Uint8Array[],
	): Promise<Result> {
		return new Promise((resolve, reject) => {
			const size = parts.reduce((sum, part) => sum + part.byteLength, 0);
			const settle = (value: Value, received: readonly Uint8Array[]) => resolve(read(value, received));
			this.#waiting.push({ request, parts, size, settle, reject });
			this.#schedule();
		});
	}

	// Waiting for the end of the event loop's turn lets all requests that arrived in it travel together.
	#schedule(): void {
		if (this.#scheduled || this.#sent.length > (this.#options.ahead ?? 0)) return;
		this.#scheduled = true;
		setImmediate(() => {
			this.#scheduled = false;
			if (this.#worker !== undefined) this.#sendBatch(this.#worker);
			else this.start().catch((error: unknown) => this.#failWaiting(error));
		});
	}

	#sendBatch(worker: Worker): void {
		const { ahead = 0, batch = maxBatchRequests, batchBytes = maxBatchBytes } = this.#options;
		if (this.#sent.length > ahead || this.#waiting.length === 0) return;
		let count = 0;
		let bytes = 0;
		for (const { size } of this.#waiting) {
			if (count > 0 && (count === batch || bytes + size > batchBytes)) break;
			count += 1;
			bytes += size;
		}
		const sent = this.#waiting.splice(0, count);
		this.#sent.push(...sent);
		const packed = pack(sent.map(({ parts }) => parts));
		worker.postMessage({ requests: mapDense(sent, ({ request }) => request), packed }, transferOf(packed));
		this.#sendBatch(worker);
	}

	#spawn(): Promise<void> {
		const { script, data, name, youngGeneration = 24 } = this.#options;
		return new Promise((resolve, reject) => {
			const resourceLimits = { maxYoungGenerationSizeMb: youngGeneration };
			const worker = new Worker(script, { workerData: data, name, resourceLimits });
			this.#gone = new Promise((gone) => {
				worker.once("exit", () => gone());
			});
			let ended = false;
			const end = (failure: Failure) => {
				if (ended) return;
				ended = true;
				const error = this.#options.toError(failure);
				reject(error);
				this.#ended(error);
			};
			worker.on("message", (message: WorkerMessage) => {
				switch (message.kind) {
					case "ready":
						this.#worker = worker;
						resolve();
						return this.#sendBatch(worker);
					case "answers":
						this.#receive(message.outcomes, message.packed);
						return this.#sendBatch(worker);
					case "failed":
						return end(message.failure);
				}
			});
			worker.on("error", (error) => end(failureOf(error)));
			worker.on("exit", (code) => end({ message: `the thread ended with code ${code}`, code: undefined }));
		});
	}

	#receive(outcomes: readonly Outcome[], packed: Packed): void {
		const lists = unpack(packed);
		const failures = new Map<string, { failure: Failure; operation: string; count: number }>();
		for (const [index, pending] of this.#sent.splice(0, outcomes.length).entries()) {
			const outcome = outcomes[index];
			if (outcome === undefined) continue;
			if ("value" in outcome) {
				try {
					pending.settle(outcome.value, lists[index] ?? []);
				} catch (error) {
					pending.reject(error);
				}
				continue;
			}
			const { failure } = outcome;
			pending.reject(this.#options.toError(failure));
			const operation = pending.request.kind;
			const key = `${operation} ${failure.message}`;
			failures.set(key, { failure, operation, count: (failures.get(key)?.count ?? 0) + 1 });
		}
		for (const { failure, operation, count } of failures.values()) {
			this.#options.log.error(
				{ err: this.#options.toError(failure), operation, count },
				`${this.#options.whole} failed`,
			);
		}
	}

	#ended(error: ServiceError): void {
		this.#worker = undefined;
		this.#starting = undefined;
		if (this.#closing !== undefined && this.#sent.length === 0 && this.#waiting.length === 0) return;
		this.#options.log.error({ err: error, operation: this.#options.name }, `a thread of ${this.#options.whole} ended`);
		for (const pending of this.#sent.splice(0)) pending.reject(error);
		this.#failWaiting(error);
	}

	#failWaiting(error: unknown): void {
		const reason = error instanceof ServiceError ? error : this.#options.toError(failureOf(error));
		for (const pending of this.#waiting.splice(0)) pending.reject(reason);
	}
}
