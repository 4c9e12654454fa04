import { type CallSignal, ServiceError } from "../errors.ts";
import type { ApplyRequest } from "../events/record-updater.ts";
import { STATE_UPDATE } from "../events/state-update.ts";
import { bufferOf, compact, release } from "../memory.ts";
import {
	localCalls,
	type ThreadLogger,
	type ThreadObserver,
	WorkerThread,
	type WorkerThreadOptions,
} from "../threads/worker-thread.ts";
import type { IntakeData } from "./intake-worker.ts";
import type { EventBody, EventRequest, FetchedRecord, IntakeCalls, RecordIntake } from "./record-intake.ts";

/** Size in bytes from which a record goes to a thread even while few requests are under way. */
const MIN_THREAD_BYTES = 64 * 2 ** 10;
/**
 * Maximum numbers of requests under way with which small records are processed in the calling thread. A protobuf message
 * takes twice the time of its JSON (110 instead of 60 µs), and grpc-js leaves less of the thread.
 */
const FEW_JSON = 16;
const FEW_PROTOBUF = 4;
/** Size in bytes from which bodies and records go to the thread for large ones. */
const MIN_LARGE_BYTES = 2 ** 20;
/** Milliseconds without work after which a thread ends. A start takes about 0.2 seconds of processor time. */
const IDLE_MILLISECONDS = 60_000;
/** Maximum old generations of the two threads, in MiB. A call that needs more ends its thread and fails. */
const HEAP_MIB = 256;
const LARGE_HEAP_MIB = 1024;
/** Maximum number of calls that a thread has at a time: some milliseconds of work. */
const MAX_CALLS_SENT = 256;

interface IntakeOptions {
	/** Does the work in the calling thread. */
	readonly here: RecordIntake;
	/** Returns the number of requests under way for which records are ingested. */
	readonly underWay: () => number;
	/** From which a thread makes the same as `here`. */
	readonly data: IntakeData;
	readonly log: ThreadLogger;
	readonly observer?: ThreadObserver | undefined;
}

/**
 * Parses, checks, protects and compares records and events, in one of three places. Small ones are processed in the
 * calling thread while few requests are under way, which takes less time than to send them to another thread. A second
 * thread takes the other ones of usual size, and a third one large ones, so that a large one delays only other large
 * ones. State updates always go to a thread: it holds the records to which they are applied.
 *
 * A thread starts with its first call, and ends after a minute without one.
 */
export class SharedIntake implements IntakeCalls, AsyncDisposable {
	readonly #here: IntakeCalls;
	readonly #usual: WorkerThread<RecordIntake>;
	readonly #large: WorkerThread<RecordIntake>;
	readonly #underWay: () => number;

	constructor({ here, underWay, data, log, observer }: IntakeOptions) {
		const common: Pick<WorkerThreadOptions, "owner" | "toError" | "log" | "observer"> = {
			owner: "the intake",
			// The message of an unexpected error in a call may quote a record. That of a failed thread does not.
			toError: ({ message }, of) =>
				of === "call"
					? new ServiceError("internal", "the record could not be processed")
					: new ServiceError("unavailable", "the intake failed", { cause: new Error(message) }),
			log,
			observer,
		};
		const thread = (name: string, oldGenerationMiB: number) =>
			new WorkerThread<RecordIntake>({
				...common,
				name,
				script: new URL("./intake-worker", import.meta.url),
				data,
				youngGenerationMiB: 12,
				oldGenerationMiB,
				idleMilliseconds: IDLE_MILLISECONDS,
				maxCallsSent: MAX_CALLS_SENT,
			});
		this.#here = localCalls(here, common);
		this.#underWay = underWay;
		this.#usual = thread("intake", HEAP_MIB);
		this.#large = thread("large-intake", LARGE_HEAP_MIB);
	}

	async fromJson(body: Uint8Array, signal?: CallSignal) {
		if (this.#isForHere(body, FEW_JSON)) return await this.#here.fromJson(body);
		return await this.#parse(body, (thread, bytes) => thread.fromJson(bytes, signal));
	}

	async fromRequest(request: Uint8Array, signal?: CallSignal) {
		if (this.#isForHere(request, FEW_PROTOBUF)) return await this.#here.fromRequest(request);
		return await this.#parse(request, (thread, bytes) => thread.fromRequest(bytes, signal));
	}

	async eventsFromJson(batch: EventBody, signal?: CallSignal) {
		const { body } = batch;
		if (this.#isForHere(body, FEW_JSON) && !bufferOf(body).includes(STATE_UPDATE))
			return await this.#here.eventsFromJson(batch);
		return await this.#parse(body, (thread, bytes) => thread.eventsFromJson({ ...batch, body: bytes }, signal));
	}

	async eventsFromRequest(batch: EventRequest, signal?: CallSignal) {
		const { request } = batch;
		if (this.#isForHere(request, FEW_PROTOBUF) && !bufferOf(request).includes(STATE_UPDATE))
			return await this.#here.eventsFromRequest(batch);
		return await this.#parse(request, (thread, bytes) =>
			thread.eventsFromRequest({ ...batch, request: bytes }, signal),
		);
	}

	async #parse<Result>(
		body: Uint8Array,
		parse: (thread: IntakeCalls, bytes: Uint8Array) => Promise<Result>,
	): Promise<Result> {
		const bytes = compact(body);
		try {
			return await parse(this.#threadFor(bytes), bytes);
		} finally {
			// The caller may still need the body itself.
			if (bytes !== body) release(bytes);
		}
	}

	async applyEvents({ conversationId, current, updates }: ApplyRequest) {
		const { record } = current;
		const texts = updates.map(({ event }) => event.text);
		const byteLength = texts.reduce((sum, text) => sum + text.byteLength, record?.bytes.byteLength ?? 0);
		return await this.#threadFor({ byteLength }).applyEvents({
			conversationId,
			current: { ...current, record: record && { ...record, bytes: compact(record.bytes) } },
			updates: updates.map(({ event, happenedAt }) => ({ event: { ...event, text: compact(event.text) }, happenedAt })),
		});
	}

	async fromFetched({ body, present }: FetchedRecord, signal?: CallSignal) {
		const byteLength = body.byteLength + (present?.byteLength ?? 0);
		const fetched = { body: compact(body), present: present && compact(present) };
		return await this.#threadFor({ byteLength }).fromFetched(fetched, signal);
	}

	async isSame({ stored, arriving }: Parameters<RecordIntake["isSame"]>[0]) {
		if (this.#isForHere(stored, FEW_PROTOBUF)) return await this.#here.isSame({ stored, arriving });
		return await this.#threadFor(stored).isSame({ stored: compact(stored), arriving: compact(arriving) });
	}

	#isForHere({ byteLength }: Uint8Array, few: number): boolean {
		return byteLength < MIN_THREAD_BYTES && this.#underWay() <= few;
	}

	#threadFor({ byteLength }: Pick<Uint8Array, "byteLength">): IntakeCalls {
		return (byteLength < MIN_LARGE_BYTES ? this.#usual : this.#large).calls;
	}

	/** Completes the calls that were made, then ends the threads. */
	async [Symbol.asyncDispose](): Promise<void> {
		await Promise.all([this.#usual.close(), this.#large.close()]);
	}
}
