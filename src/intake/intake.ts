import type { CallSignal } from "../call-signal.ts";
import type { EventIntake } from "../conversations/ingest/event-ingest.ts";
import type { Intake } from "../conversations/ingest/ingest.ts";
import type { LargeRecords } from "../conversations/read/get.ts";
import { ServiceError } from "../errors.ts";
import type { AppliedUpdates, ApplyRequest, PreparedBatch } from "../events/live-records.ts";
import { compact, release } from "../memory.ts";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import type { NewUpdate, StoredRecord } from "../store/store.ts";
import { type ThreadLog, type ThreadObserver, WorkerThread } from "../threads/worker-thread.ts";
import type { IntakeData, RecordIntake } from "./record-intake.ts";

/** Size in bytes from which bodies and records go to the thread for large ones. */
const MIN_LARGE_BYTES = 2 ** 20;
/** Maximum old generations of the two threads, in MiB. A call that needs more ends its thread and fails. */
const HEAP_MIB = 256;
const LARGE_HEAP_MIB = 1024;
/** Maximum number of calls that a thread has at a time: some milliseconds of work. */
const MAX_CALLS_SENT = 256;
/** Maximum number of bytes of the large records that are being opened for reads. A single record may exceed it. */
const MAX_OPENING_BYTES = 64 * 2 ** 20;

/**
 * Parses, checks, protects and compares records and events on two threads: one for usual sizes, and one for large ones,
 * which is started when it is first needed. A large body therefore delays only other large ones. Neither thread delays
 * the streams and reads of the main thread.
 */
export class IntakeThreads implements Intake, EventIntake, LargeRecords, AsyncDisposable {
	readonly minLargeBytes = MIN_LARGE_BYTES;
	readonly #usual: WorkerThread<RecordIntake>;
	readonly #large: WorkerThread<RecordIntake>;
	#openingBytes = 0;

	private constructor(data: IntakeData, log: ThreadLog, observer: ThreadObserver | undefined) {
		const thread = (name: string, oldGenerationMiB: number) =>
			new WorkerThread<RecordIntake>({
				owner: "the intake",
				name,
				script: new URL("./intake-worker", import.meta.url),
				data,
				// The message of an unexpected error in a call may quote a record. That of a failed thread does not.
				toError: ({ message }, of) =>
					of === "call"
						? new ServiceError("internal", "the record could not be processed")
						: new ServiceError("unavailable", "the intake failed", { cause: new Error(message) }),
				log,
				youngGenerationMiB: 12,
				oldGenerationMiB,
				retriesCalls: true,
				maxCallsSent: MAX_CALLS_SENT,
				observer,
			});
		this.#usual = thread("intake", HEAP_MIB);
		this.#large = thread("large-intake", LARGE_HEAP_MIB);
	}

	/** Starts the thread for records of usual size. Resolves when it accepts calls. */
	static async start(data: IntakeData, log: ThreadLog, observer?: ThreadObserver): Promise<IntakeThreads> {
		const threads = new IntakeThreads(data, log, observer);
		await threads.#usual.start();
		return threads;
	}

	fromJson(body: Buffer, signal: CallSignal): Promise<NewUpdate> {
		return this.#parse(compact(body), (thread, bytes) => thread.calls.fromJson(bytes, signal));
	}

	fromRequest(request: Uint8Array, signal: CallSignal): Promise<NewUpdate> {
		return this.#parse(compact(request), (thread, bytes) => thread.calls.fromRequest(bytes, signal));
	}

	eventsFromJson(conversationId: string, body: Buffer, signal: CallSignal): Promise<PreparedBatch> {
		return this.#parse(compact(body), (thread, bytes) =>
			thread.calls.eventsFromJson({ conversationId, body: bytes }, signal),
		);
	}

	eventsFromRequest(request: Uint8Array, signal: CallSignal): Promise<PreparedBatch> {
		return this.#parse(compact(request), (thread, bytes) => thread.calls.eventsFromRequest(bytes, signal));
	}

	async #parse<Result>(
		bytes: Uint8Array,
		parse: (thread: WorkerThread<RecordIntake>, bytes: Uint8Array) => Promise<Result>,
	): Promise<Result> {
		try {
			return await parse(this.#threadFor(bytes), bytes);
		} finally {
			release(bytes);
		}
	}

	applyEvents({ conversationId, present, updates }: ApplyRequest): Promise<AppliedUpdates> {
		const { record } = present;
		const texts = updates.map(({ event }) => event.text);
		const byteLength = texts.reduce((sum, text) => sum + text.byteLength, record?.bytes.byteLength ?? 0);
		return this.#threadFor({ byteLength }).calls.applyEvents({
			conversationId,
			present: { ...present, record: record && { ...record, bytes: compact(record.bytes) } },
			updates: updates.map(({ event, happenedAt }) => ({ event: { ...event, text: compact(event.text) }, happenedAt })),
		});
	}

	/** See `RecordVault.isSame`. */
	isSame(stored: Uint8Array, arriving: Uint8Array): Promise<boolean> {
		return this.#threadFor(stored).calls.isSame({ stored: compact(stored), arriving: compact(arriving) });
	}

	openEncoded(record: StoredRecord, form: SecretsForm): Promise<Uint8Array> {
		return this.#open(record, (own) => this.#large.calls.openEncoded({ record: own, form }));
	}

	openJson(record: StoredRecord, form: SecretsForm): Promise<string> {
		return this.#open(record, (own) => this.#large.calls.openJson({ record: own, form }));
	}

	/** Opens a record. Fails while too many bytes are being opened, because the store reads records faster than that. */
	async #open<Form>(record: StoredRecord, open: (record: StoredRecord) => Promise<Form>): Promise<Form> {
		const { byteLength } = record.bytes;
		if (this.#openingBytes > 0 && this.#openingBytes + byteLength > MAX_OPENING_BYTES) {
			release(record.bytes);
			throw new ServiceError("unavailable", "Too many large records are being read; try again later");
		}
		this.#openingBytes += byteLength;
		try {
			return await open({ ...record, bytes: compact(record.bytes) });
		} finally {
			this.#openingBytes -= byteLength;
		}
	}

	#threadFor({ byteLength }: Pick<Uint8Array, "byteLength">): WorkerThread<RecordIntake> {
		return byteLength < MIN_LARGE_BYTES ? this.#usual : this.#large;
	}

	/** Completes the calls that were made, then ends the threads. */
	async [Symbol.asyncDispose](): Promise<void> {
		await Promise.all([this.#usual.close(), this.#large.close()]);
	}
}
