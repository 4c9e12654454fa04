import { isDataLoss, ServiceError, withConversation } from "../../errors.ts";
import type { RefusedStatement } from "../../events/live-record.ts";
import {
	type AppliedUpdates,
	type ApplyRequest,
	newRevision,
	type PresentRecord,
	type ReadBatch,
} from "../../events/live-records.ts";
import { STATE_UPDATE } from "../../events/statements.ts";
import { release } from "../../memory.ts";
import { combined, mergeDeltas, mergeRecord } from "../../record/record-delta.ts";
import type { EventCondition } from "../../store/event-condition.ts";
import type { AppendedEvents, LiveState, NewEvents, NewLiveState, Store, StoredRecord } from "../../store/store.ts";
import type { Log } from "../../telemetry/log.ts";
import { assertAwaited, type CallSignal } from "./call-signal.ts";

/** Turns what arrives into events and makes records of them, on a thread of its own or at once. */
export interface EventIntake {
	/**
	 * As `EventFormat.parse`, then `LiveRecords.applyToHeld`. The body may be gone afterwards.
	 *
	 * @param signal the body need not be looked at when it has fired
	 */
	eventsFromJson(conversationId: string, body: Buffer, signal: CallSignal): Promise<ReadBatch>;
	/**
	 * As `EventFormat.fromRequest`, then `LiveRecords.applyToHeld`. The request may be gone afterwards.
	 *
	 * @param signal the request need not be looked at when it has fired
	 */
	eventsFromRequest(request: Uint8Array, signal: CallSignal): Promise<ReadBatch>;
	/** As `LiveRecords.apply`. */
	applyEvents(request: ApplyRequest): Promise<AppliedUpdates>;
}

/** A batch of events that is on disk. */
export interface IngestedEvents {
	/** Number of events that were not stored before. */
	readonly stored: number;
	/** Sequence of the update that the events made of the record; undefined when they made none. */
	readonly updateSequence: bigint | undefined;
}

/** How often a batch is tried whose conversation changes meanwhile: by posted records, and by what held records gave. */
const MAX_ATTEMPTS = 10;
/** Most bytes of stored events that are applied at a time. */
const PAGE_BYTES = 4 * 2 ** 20;
/** Conversations that are settled at a time when the service starts. */
const SETTLED_AT_A_TIME = 100;

type EventStore = Pick<Store, "appendEvents" | "getLiveState" | "listUnapplied" | "events">;
type Updates = ApplyRequest["updates"];

/** What state updates make of a record. */
interface Progress extends AppliedUpdates {
	readonly present: PresentRecord;
}

/** Stores batches of events, for every transport that receives them, and keeps the records live that they tell of. */
export class EventIngest {
	readonly #store: EventStore;
	readonly #intake: EventIntake;
	readonly #log: Pick<Log, "statementsRefused" | "recordUnreadable">;
	/** The last work on each conversation that is under way. */
	readonly #turns = new Map<string, Promise<IngestedEvents>>();

	constructor(store: EventStore, intake: EventIntake, log: Pick<Log, "statementsRefused" | "recordUnreadable">) {
		this.#store = store;
		this.#intake = intake;
		this.#log = log;
	}

	/**
	 * Stores a batch that arrived as JSON, with the update that it makes of the conversation's record. Resolves when it is
	 * on disk.
	 *
	 * @param conversationId lower-case UUID with dashes
	 * @param signal nothing is stored if it has fired when the batch is checked
	 * @throws ServiceError `invalid_record`; `unavailable` or `internal` when it could not be stored, and then nothing of
	 *   it was; and as {@link assertAwaited}
	 */
	async json(conversationId: string, body: Buffer, signal: CallSignal): Promise<IngestedEvents> {
		const read = await this.#intake.eventsFromJson(conversationId, body, signal);
		assertAwaited(signal);
		return await this.#ingest(read);
	}

	/**
	 * Stores the batch of an encoded IngestConversationEventsRequest. Resolves when it is on disk.
	 *
	 * @param signal nothing is stored if it has fired when the batch is checked, or its deadline is over when the store
	 *   begins
	 * @throws ServiceError as `json` does, `invalid_argument` when it is no such message, and as {@link assertAwaited}
	 */
	async request(request: Uint8Array, signal: CallSignal): Promise<IngestedEvents> {
		const read = await this.#intake.eventsFromRequest(request, signal);
		assertAwaited(signal);
		return await this.#ingest({ ...read, batch: { ...read.batch, awaitedUntil: signal.deadline } });
	}

	/**
	 * Applies to the current record of a conversation what stored events tell that is later, if that is not done yet.
	 *
	 * @throws ServiceError `unavailable` or `internal` when it could not be done; the store remembers that it is to be done
	 */
	async settle(conversationId: string): Promise<void> {
		const receivedAt = BigInt(Date.now()) * 1000n;
		const batch = { conversationId, receivedAt, events: [], live: undefined };
		await this.#inTurn(conversationId, () => this.#appendLive(batch));
	}

	/**
	 * Settles all conversations whose turn had come when the service ended.
	 *
	 * @throws ServiceError as {@link settle} does, for the first one that failed, when all others are settled
	 */
	async settleAll(): Promise<void> {
		const failures = new Map<string, unknown>();
		for (;;) {
			const unsettled = await this.#store.listUnapplied(SETTLED_AT_A_TIME + failures.size);
			const next = unsettled.filter((conversationId) => !failures.has(conversationId));
			if (next.length === 0) break;
			for (const conversationId of next)
				await this.settle(conversationId).catch((error: unknown) =>
					failures.set(conversationId, withConversation(error, conversationId)),
				);
		}
		for (const error of failures.values()) throw error;
	}

	async #ingest({ batch, refused }: ReadBatch): Promise<IngestedEvents> {
		const tells = batch.events.some(({ kind }) => kind === STATE_UPDATE);
		if (!tells || batch.live !== undefined) {
			const appended = await this.#store.appendEvents(batch);
			if (appended !== undefined) return this.#done(batch, appended, refused);
		}
		return await this.#inTurn(batch.conversationId, () => this.#appendLive(batch));
	}

	#done(
		{ conversationId }: NewEvents,
		{ stored, updateSequence }: AppendedEvents,
		refused: readonly RefusedStatement[],
	): IngestedEvents {
		const violations = refused.flatMap((statement) => statement.violations);
		if (violations.length > 0) this.#log.statementsRefused(conversationId, violations);
		return { stored, updateSequence };
	}

	/** Does the work when what was to be done before about the same conversation is done. */
	async #inTurn(conversationId: string, work: () => Promise<IngestedEvents>): Promise<IngestedEvents> {
		const before = this.#turns.get(conversationId);
		const turn = before === undefined ? work() : before.then(work, work);
		this.#turns.set(conversationId, turn);
		try {
			return await turn;
		} finally {
			if (this.#turns.get(conversationId) === turn) this.#turns.delete(conversationId);
		}
	}

	/** Appends a batch with what it makes of the record that the store has. */
	async #appendLive(batch: NewEvents): Promise<IngestedEvents> {
		const { conversationId } = batch;
		const updates = batch.events.filter(({ kind }) => kind === STATE_UPDATE);
		const ids = updates.map(({ eventId }) => eventId);
		for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
			const state = await this.#store.getLiveState(conversationId, ids);
			const known = new Set(state.knownIds);
			const told = updates
				.filter(({ eventId }) => !known.has(eventId))
				.map(({ text, secrets, redactionVersion, happenedAt }) => ({
					event: { text, secrets, redactionVersion },
					happenedAt,
				}));
			const tellsNothing = told.length === 0 && !state.hasUnappliedEvents;
			if (tellsNothing && batch.events.length === 0) return { stored: 0, updateSequence: undefined };
			const { live, refused } = tellsNothing
				? { live: undefined, refused: [] }
				: await this.#make(conversationId, state, told);
			const events = batch.events.filter(({ eventId }) => !known.has(eventId));
			const appended = await this.#store.appendEvents({ ...batch, events, live });
			if (appended !== undefined) return this.#done(batch, appended, refused);
		}
		throw conflicting(conversationId);
	}

	/**
	 * What state updates make of the present record. It is given also where nothing changes, so that a record that is
	 * posted meanwhile makes the store refuse it: the updates have to be applied to that record.
	 *
	 * A record that cannot be read stays as it is until the next one is posted.
	 */
	async #make(
		conversationId: string,
		state: LiveState,
		updates: Updates,
	): Promise<{ readonly live: NewLiveState; readonly refused: readonly RefusedStatement[] }> {
		const { revision: expects, told = "{}", current } = state;
		try {
			const record = current?.record;
			if (record !== undefined && "unreadable" in record) throw new ServiceError("data_loss", record.unreadable);
			const { refused, present: _, ...live } = await this.#applyAll(conversationId, state, record, updates);
			if (record !== undefined) release(record.bytes);
			return { live: { expects, ...live }, refused };
		} catch (error) {
			if (!isDataLoss(error)) throw error;
			this.#log.recordUnreadable({ conversationId, sequence: current?.sequence ?? 0n, error });
			return { live: { expects, next: newRevision(), told, version: undefined }, refused: [] };
		}
	}

	/**
	 * Applies updates to a record. Stored ones come first where they were not applied to it: when it was posted after
	 * them, and when the updates make the first record of the conversation.
	 */
	async #applyAll(
		conversationId: string,
		{ told, postedAt, hasUnappliedEvents }: LiveState,
		record: StoredRecord | undefined,
		updates: Updates,
	): Promise<Progress> {
		let progress: Progress | undefined;
		const apply = async (applied: Updates): Promise<Progress> => {
			const present: PresentRecord = progress === undefined ? { told, postedAt, record } : presentAfter(progress);
			return added(progress, present, await this.#intake.applyEvents({ conversationId, present, updates: applied }));
		};
		if (record === undefined) {
			const first = await apply(updates);
			progress = { ...first, refused: [] };
			if (first.version === undefined) return progress;
		}
		if (record === undefined || hasUnappliedEvents)
			for await (const stored of this.#storedUpdates(conversationId, postedAt)) progress = await apply(stored);
		return await apply(updates);
	}

	/** The stored state updates of a conversation that happened after a time, in the order of their arrival. */
	async *#storedUpdates(conversationId: string, time: bigint | undefined): AsyncGenerator<Updates> {
		const later: EventCondition[] = time === undefined ? [] : [{ kind: "happened", from: time + 1n }];
		const conditions: EventCondition[] = [{ kind: "one_of", field: "kind", values: [STATE_UPDATE] }, ...later];
		for (let after = 0n; ; ) {
			const query = { conversationId, after, conditions, limit: 1000, maxBytes: PAGE_BYTES };
			const page = await this.#store.events.list(query);
			const last = page.at(-1);
			if (last === undefined) return;
			yield page.flatMap(({ event, happenedAt }) => ("unreadable" in event ? [] : [{ event, happenedAt }]));
			after = last.sequence;
		}
	}
}

/** What was made so far with what was made last, of the record that was present in between. */
function added(before: Progress | undefined, present: PresentRecord, made: AppliedUpdates): Progress {
	if (before === undefined) return { ...made, present };
	const { record } = before.present;
	const [first, last] = [before.version, made.version];
	const merge = record === undefined ? mergeRecord : mergeDeltas;
	const version =
		first === undefined || last === undefined
			? (last ?? first)
			: { summary: last.summary, record: combined(first.record, last.record, merge) };
	return { ...made, version, present: before.present, refused: [...before.refused, ...made.refused] };
}

/** The record that updates made of the one that was present before. */
function presentAfter({ present, told, version }: Progress): PresentRecord {
	if (version === undefined) return { ...present, told };
	const { record } = present;
	return {
		...present,
		told,
		record: record === undefined ? version.record : combined(record, version.record, mergeRecord),
	};
}

function conflicting(conversationId: string): ServiceError {
	return new ServiceError("unavailable", "the conversation changed meanwhile; try again", { conversationId });
}
