import { ServiceError } from "../../errors.ts";
import type { RefusedStatement } from "../../events/live-record.ts";
import type { AppliedUpdates, ApplyRequest, PresentRecord } from "../../events/live-records.ts";
import { STATE_UPDATE } from "../../events/statements.ts";
import { mergeDeltas, mergeRecord } from "../../record/record-delta.ts";
import type { EventCondition } from "../../store/event-condition.ts";
import type { LiveState, LiveVersion, NewEvents, NewLiveState, Store, StoredRecord } from "../../store/store.ts";
import type { Log } from "../../telemetry/log.ts";

/** Turns what arrives into events and makes records of them, on a thread of its own or at once. */
export interface EventIntake {
	/** As `EventFormat.parse`. */
	eventsFromJson(conversationId: string, body: Buffer): Promise<NewEvents>;
	/** As `EventFormat.fromRequest`. */
	eventsFromRequest(request: Uint8Array): Promise<NewEvents>;
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

/** How often a batch is tried whose conversation changes meanwhile. Only posted records can come in between. */
const MAX_ATTEMPTS = 10;
/** Most bytes of stored events that are applied at a time. */
const PAGE_BYTES = 4 * 2 ** 20;
/** Conversations that are settled at a time when the service starts. */
const SETTLED_AT_A_TIME = 100;

type EventStore = Pick<Store, "appendEvents" | "getLiveState" | "listBehind" | "events">;
type Updates = ApplyRequest["updates"];

/** What state updates made of a record so far. */
interface Progress {
	readonly present: PresentRecord;
	readonly version: LiveVersion | undefined;
	readonly refused: readonly RefusedStatement[];
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
	 * @throws ServiceError `invalid_record`; `unavailable` or `internal` when it could not be stored, and then nothing of
	 *   it was
	 */
	async json(conversationId: string, body: Buffer): Promise<IngestedEvents> {
		return await this.#ingest(await this.#intake.eventsFromJson(conversationId, body));
	}

	/**
	 * Stores the batch of an encoded IngestConversationEventsRequest. Resolves when it is on disk.
	 *
	 * @throws ServiceError as `json` does, and `invalid_argument` when it is no such message
	 */
	async request(request: Uint8Array): Promise<IngestedEvents> {
		return await this.#ingest(await this.#intake.eventsFromRequest(request));
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

	/** Settles all conversations whose turn had come when the service ended. */
	async settleAll(): Promise<void> {
		for (;;) {
			const behind = await this.#store.listBehind(SETTLED_AT_A_TIME);
			if (behind.length === 0) return;
			for (const conversationId of behind) await this.settle(conversationId);
		}
	}

	async #ingest(batch: NewEvents): Promise<IngestedEvents> {
		if (batch.events.some(({ kind }) => kind === STATE_UPDATE))
			return await this.#inTurn(batch.conversationId, () => this.#appendLive(batch));
		const appended = await this.#store.appendEvents(batch);
		if (appended === undefined) throw conflicting(batch.conversationId);
		return appended;
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
			const tellsNothing = told.length === 0 && !state.isBehind;
			if (tellsNothing && batch.events.length === 0) return { stored: 0, updateSequence: undefined };
			const made = tellsNothing ? undefined : await this.#make(conversationId, state, told);
			// The store takes the texts over, and another attempt needs them.
			const events = batch.events.map((event) => ({ ...event, text: event.text.slice() }));
			const appended = await this.#store.appendEvents({ ...batch, events, live: made?.live });
			if (appended === undefined) continue;
			const violations = made?.refused.flatMap((statement) => statement.violations) ?? [];
			if (violations.length > 0) this.#log.statementsRefused(conversationId, violations);
			return { stored: appended.stored, updateSequence: appended.updateSequence };
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
			const { present, version, refused } = await this.#applyAll(conversationId, state, record, updates);
			return { live: { expects, told: present.told ?? told, version }, refused };
		} catch (error) {
			if (!(error instanceof ServiceError) || error.kind !== "data_loss") throw error;
			this.#log.recordUnreadable({ conversationId, sequence: current?.sequence ?? 0n, error });
			return { live: { expects, told, version: undefined }, refused: [] };
		}
	}

	/**
	 * Applies updates to a record. Stored ones come first where they were not applied to it: when it was posted after
	 * them, and when the updates make the first record of the conversation.
	 */
	async #applyAll(
		conversationId: string,
		{ told, postedAt, isBehind }: LiveState,
		record: StoredRecord | undefined,
		updates: Updates,
	): Promise<Progress> {
		let progress: Progress = { present: { told, postedAt, record }, version: undefined, refused: [] };
		if (record === undefined) {
			progress = { ...(await this.#apply(conversationId, progress, updates)), refused: [] };
			if (progress.version === undefined) return progress;
		}
		if (record === undefined || isBehind)
			for await (const stored of this.#storedUpdates(conversationId, postedAt))
				progress = await this.#apply(conversationId, progress, stored);
		return await this.#apply(conversationId, progress, updates);
	}

	async #apply(conversationId: string, { present, version, refused }: Progress, updates: Updates): Promise<Progress> {
		const applied = await this.#intake.applyEvents({ conversationId, present, updates });
		const next = { ...present, told: applied.told };
		const allRefused = [...refused, ...applied.refused];
		if (applied.version === undefined) return { present: next, version, refused: allRefused };
		const { summary, record: made } = applied.version;
		if (present.record === undefined)
			return { present: { ...next, record: made }, version: applied.version, refused: allRefused };
		const record = combined(present.record, made, mergeRecord);
		// What is made of the first record is whole, as that is.
		const isWhole = version !== undefined && version.record === present.record;
		const all = version === undefined ? made : isWhole ? record : combined(version.record, made, mergeDeltas);
		return { present: { ...next, record }, version: { summary, record: all }, refused: allRefused };
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

/** Two records or deltas as one. Versions that differ say nothing, which is 0. */
function combined(
	one: StoredRecord,
	other: StoredRecord,
	merge: (one: Uint8Array, other: Uint8Array) => Uint8Array,
): StoredRecord {
	const { redactionVersion, schemaVersion } = other;
	return {
		bytes: merge(one.bytes, other.bytes),
		redactionVersion: one.redactionVersion === redactionVersion ? redactionVersion : 0,
		schemaVersion: one.schemaVersion === schemaVersion ? schemaVersion : 0,
	};
}

function conflicting(conversationId: string): ServiceError {
	return new ServiceError("unavailable", "the conversation changed meanwhile; try again", { conversationId });
}
