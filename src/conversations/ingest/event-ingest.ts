import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { IngestConversationEventsRequestSchema } from "../../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { type CallSignal, isDataLoss, ServiceError, withConversation } from "../../errors.ts";
import type { RefusedMember } from "../../events/apply-updates.ts";
import {
	type AppliedUpdates,
	type ApplyRequest,
	type CurrentRecord,
	newRevision,
	type PreparedBatch,
} from "../../events/record-updater.ts";
import { STATE_UPDATE } from "../../events/state-update.ts";
import type { IntakeCalls } from "../../intake/record-intake.ts";
import { release, releaseWhole } from "../../memory.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import { mergeDeltas, mergeProtected, mergeRecord } from "../../record/record-delta.ts";
import type { TextIndexer } from "../../search/indexer.ts";
import type { EventCondition } from "../../store/condition.ts";
import type { AppendedEvents, EventEffect, NewEvents, RecordState } from "../../store/entries.ts";
import { ownerRefusal, type Poster } from "../../store/owners.ts";
import type { Store } from "../../store/store.ts";
import type { StoredRecord } from "../../store/values.ts";
import { brokenRules, type EventLog } from "../../telemetry/log.ts";
import type { ClockSkews } from "../senders.ts";

/** Reads events from bodies and applies them to records. */
export type EventIntake = Pick<IntakeCalls, "eventsFromJson" | "eventsFromRequest" | "applyEvents">;

/** A batch of events that is on disk. */
export interface IngestedEvents {
	readonly stored: number;
	/** Sequence of the update that the events made of the record; undefined when they made none. */
	readonly updateSequence: bigint | undefined;
}

/**
 * Maximum number of attempts to append a batch. An attempt fails when the record state that the batch was computed
 * from has changed, through a posted record or through state updates that were applied to a cached record.
 */
const MAX_ATTEMPTS = 10;
/** Maximum bytes of stored events that are applied at a time. */
const PAGE_BYTES = 4 * 2 ** 20;
const ID_FIELD = IngestConversationEventsRequestSchema.field.conversationId.number;
/** Number of conversations that {@link EventIngest.applyAllUnappliedEvents} lists at a time, not counting failed ones. */
const UNAPPLIED_PAGE_SIZE = 100;

type EventStore = Pick<Store, "appendEvents" | "getOwnership" | "getRecordState" | "listUnapplied" | "events">;
type Updates = ApplyRequest["updates"];

/** Combined result of the state updates that have been applied to a record so far. */
interface Progress extends AppliedUpdates {
	readonly current: CurrentRecord;
}

/** Stores batches of events for all transports, and applies the state updates among them to the records. */
export type EventIngest = ReturnType<typeof eventIngestOf>;

export function eventIngestOf(
	store: EventStore,
	intake: EventIntake,
	log: EventLog,
	{ clocks, indexer }: { readonly clocks?: Pick<ClockSkews, "add">; readonly indexer?: Pick<TextIndexer, "add"> } = {},
) {
	/** The last task in the queue of each conversation that has tasks. */
	const lastTasks = new Map<string, Promise<IngestedEvents>>();
	return { json, fetched, request, applyUnappliedEvents, applyAllUnappliedEvents };

	/**
	 * Stores a batch that arrived as JSON, with the update that it makes to the conversation's record. Resolves when both
	 * are on disk. Then the memory of the body is released; after a failure the body is intact.
	 *
	 * @param conversationId UUID in any form
	 * @param signal nothing is stored if it fires before the batch has been checked; later as for `Store.appendEvents`
	 * @param receivedAt when the batch arrived, in microseconds since the Unix epoch. Default: now
	 * @throws ServiceError `invalid_argument` when the id is no UUID; `invalid_record`; `unavailable` or `internal` when
	 *   the batch was not stored at all
	 */
	async function json(
		conversationId: string,
		body: Buffer,
		poster: Poster,
		signal: CallSignal,
		receivedAt?: bigint,
	): Promise<IngestedEvents> {
		await requireOwner(conversationId, poster);
		const prepared = intake.eventsFromJson({ conversationId, body, sender: poster.sender, receivedAt }, signal);
		return await ingest(prepared, body, { poster, receivedAt }, signal);
	}

	/** Stores events that were fetched from the agent server, as `json` stores posted ones. Throws as it does. */
	async function fetched(
		conversationId: string,
		body: Buffer,
		poster: Poster,
		signal: CallSignal,
	): Promise<IngestedEvents> {
		await requireOwner(conversationId, poster);
		const prepared = intake.eventsFromJson({ conversationId, body, sender: poster.sender }, signal);
		return await ingest(prepared, body, { poster, isFetched: true }, signal);
	}

	/**
	 * As `json`, with an encoded IngestConversationEventsRequest. Throws also `invalid_argument` when the bytes are none.
	 */
	async function request(
		request: Uint8Array,
		poster: Poster,
		signal: CallSignal,
		receivedAt?: bigint,
	): Promise<IngestedEvents> {
		if (poster.owner !== undefined) await requireOwner(conversationIdIn(request), poster);
		const prepared = intake.eventsFromRequest({ request, sender: poster.sender, receivedAt }, signal);
		return await ingest(prepared, request, { poster, receivedAt }, signal);
	}

	/**
	 * Asserts that a poster with an owner may post to a conversation, before the batch reaches a cached record. The append
	 * asserts it again, because the conversation may begin meanwhile.
	 */
	async function requireOwner(conversationId: string, poster: Poster): Promise<void> {
		if (poster.owner === undefined) return;
		const refusal = ownerRefusal(poster, await store.getOwnership(conversationId));
		if (refusal !== undefined) throw refusal;
	}

	/**
	 * Applies to the record of a conversation the stored state updates that are later than its posted record, unless that
	 * has been done. When it throws, the store remembers to apply them.
	 */
	async function applyUnappliedEvents(conversationId: string): Promise<void> {
		const receivedAt = BigInt(Date.now()) * 1000n;
		const batch = { conversationId, receivedAt, events: [], effect: undefined };
		await enqueue(conversationId, () => appendToCurrent(batch));
	}

	/**
	 * Applies the stored state updates that were not applied when the service last ended, of all conversations. Throws the
	 * error of the first conversation that failed, after all others.
	 */
	async function applyAllUnappliedEvents(): Promise<void> {
		const failures = new Map<string, unknown>();
		for (;;) {
			const unapplied = await store.listUnapplied(UNAPPLIED_PAGE_SIZE + failures.size);
			const next = unapplied.filter((conversationId) => !failures.has(conversationId));
			if (next.length === 0) break;
			for (const conversationId of next)
				await applyUnappliedEvents(conversationId).catch((error: unknown) =>
					failures.set(conversationId, withConversation(error, conversationId)),
				);
		}
		for (const error of failures.values()) throw error;
	}

	async function ingest(
		prepared: Promise<PreparedBatch>,
		body: Uint8Array,
		from: { readonly poster: Poster; readonly receivedAt?: bigint | undefined; readonly isFetched?: boolean },
		signal: CallSignal,
	): Promise<IngestedEvents> {
		const { poster, receivedAt, isFetched } = from;
		const { batch, delay, refused } = await prepared;
		const ingested = await append({ ...batch, poster, isFetched }, refused, signal);
		// A batch that was stored before, was fetched or arrived long ago, says nothing of the clock.
		const isNew = ingested.stored > 0 && receivedAt === undefined && !isFetched;
		if (delay !== undefined && isNew) clocks?.add(poster.sender, delay);
		releaseWhole(body);
		return ingested;
	}

	async function append(
		sent: NewEvents,
		refused: readonly RefusedMember[],
		signal: CallSignal,
	): Promise<IngestedEvents> {
		const { conversationId, events } = sent;
		if (events.every(({ laterAt }) => laterAt === undefined))
			return (
				(await appendAsPrepared(sent, refused, signal)) ??
				(await enqueue(conversationId, () => appendToCurrent(sent, signal)))
			);
		// One batch after the other, because the instants depend on what those before have stored.
		return await enqueue(conversationId, async () => {
			const batch = await inOrder(sent);
			return (await appendAsPrepared(batch, refused, signal)) ?? (await appendToCurrent(batch, signal));
		});
	}

	/** Appends a batch with the effect that it was prepared with. Returns undefined if it must be computed from the store. */
	async function appendAsPrepared(
		batch: NewEvents,
		refused: readonly RefusedMember[],
		signal: CallSignal,
	): Promise<IngestedEvents | undefined> {
		const hasStateUpdates = batch.events.some(({ kind }) => kind === STATE_UPDATE);
		if (hasStateUpdates && batch.effect === undefined) return undefined;
		const appended = await store.appendEvents(batch, signal);
		return appended === undefined ? undefined : await finish(batch, appended, refused);
	}

	/** Takes the later one of two instants that a local time can mean, where the first is before what is stored. */
	async function inOrder(batch: NewEvents): Promise<NewEvents> {
		const { conversationId, events } = batch;
		let last = (await store.getRecordState(conversationId, [])).lastEventAt;
		const ordered = events.map((event) => {
			const { happenedAt, laterAt } = event;
			const isLater = last !== undefined && laterAt !== undefined && happenedAt < last && last <= laterAt;
			const at = isLater ? laterAt : happenedAt;
			if (last === undefined || at > last) last = at;
			return isLater ? { ...event, happenedAt: at } : event;
		});
		if (ordered.every((event, index) => event === events[index])) return batch;
		// An effect was computed from the first instants.
		return { ...batch, events: ordered, effect: undefined };
	}

	/**
	 * Judges the gaps of forks again that the batch may have closed, logs the refused values, and returns the result. Events that
	 * are all new have consecutive sequences.
	 */
	async function finish(
		{ conversationId, receivedAt, indexed }: NewEvents,
		{ stored, newest, updateSequence, forks = [] }: AppendedEvents,
		refused: readonly RefusedMember[],
	): Promise<IngestedEvents> {
		if (indexed?.length === stored) indexer?.add(conversationId, newest, indexed);
		for (const fork of forks)
			await store.appendEvents({ conversationId: fork, receivedAt, events: [], effect: undefined });
		const violations = refused.flatMap((member) => member.violations);
		if (violations.length > 0)
			log.emit("event_values_refused", { conversationId, ...brokenRules(violations, "record") });
		return { stored, updateSequence };
	}

	async function enqueue(conversationId: string, run: () => Promise<IngestedEvents>): Promise<IngestedEvents> {
		const before = lastTasks.get(conversationId);
		const task = before === undefined ? run() : before.then(run, run);
		lastTasks.set(conversationId, task);
		try {
			return await task;
		} finally {
			if (lastTasks.get(conversationId) === task) lastTasks.delete(conversationId);
		}
	}

	/** Appends a batch with the update that it makes to the record in the store. */
	async function appendToCurrent(batch: NewEvents, signal?: CallSignal): Promise<IngestedEvents> {
		const { conversationId } = batch;
		const updates = batch.events.filter(({ kind }) => kind === STATE_UPDATE);
		const ids = updates.map(({ eventId }) => eventId);
		for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
			const state = await store.getRecordState(conversationId, ids);
			const known = new Set(state.knownIds);
			const newUpdates = updates
				.filter(({ eventId }) => !known.has(eventId))
				.map(({ text, secrets, redactionVersion, happenedAt }) => ({
					event: { text, secrets, redactionVersion },
					happenedAt,
				}));
			const isUpToDate = newUpdates.length === 0 && !state.hasUnappliedEvents;
			if (isUpToDate && batch.events.length === 0) return { stored: 0, updateSequence: undefined };
			const { effect, refused } = isUpToDate
				? { effect: undefined, refused: [] }
				: await applyToCurrent(conversationId, state, newUpdates);
			const events = batch.events.filter(({ eventId }) => !known.has(eventId));
			const appended = await store.appendEvents({ ...batch, events, effect }, signal);
			if (appended !== undefined) return await finish(batch, appended, refused);
		}
		throw new ServiceError(
			"unavailable",
			"the conversation was changed by another request at the same time; try again",
			{ conversationId },
		);
	}

	/**
	 * Applies state updates to the current record. Returns an effect even when nothing changes, so that the store
	 * refuses it if a record is posted meanwhile: the updates must then be applied to that record.
	 *
	 * A record that cannot be read stays as it is until the next one is posted.
	 */
	async function applyToCurrent(
		conversationId: string,
		state: RecordState,
		updates: Updates,
	): Promise<{ readonly effect: EventEffect; readonly refused: readonly RefusedMember[] }> {
		const { revision: expects, memberTimes = "{}", current } = state;
		try {
			const record = current?.record;
			if (record !== undefined && "unreadable" in record) throw new ServiceError("data_loss", record.unreadable);
			const { refused, current: _, ...effect } = await applyAll(conversationId, state, record, updates);
			if (record !== undefined) release(record.bytes);
			return { effect: { expects, ...effect }, refused };
		} catch (error) {
			if (!isDataLoss(error)) throw error;
			log.emit("record_unreadable", { conversationId, sequence: current?.sequence ?? 0n }, error);
			return { effect: { expects, next: newRevision(), memberTimes, version: undefined }, refused: [] };
		}
	}

	/**
	 * Applies updates to a record. Stored updates come first if the record lacks them: when it was posted after them, or
	 * when the updates make the first record of the conversation.
	 */
	async function applyAll(
		conversationId: string,
		{ memberTimes, postedAt, hasUnappliedEvents }: RecordState,
		record: StoredRecord | undefined,
		updates: Updates,
	): Promise<Progress> {
		let progress: Progress | undefined;
		const apply = async (applied: Updates): Promise<Progress> => {
			const current: CurrentRecord = progress === undefined ? { memberTimes, postedAt, record } : recordAfter(progress);
			return extend(progress, current, await intake.applyEvents({ conversationId, current, updates: applied }));
		};
		if (record === undefined) {
			const first = await apply(updates);
			progress = { ...first, refused: [] };
			if (first.version === undefined) return progress;
		}
		if (record === undefined || hasUnappliedEvents)
			for await (const stored of storedUpdates(conversationId, postedAt)) progress = await apply(stored);
		return await apply(updates);
	}

	/** Reads the stored state updates of a conversation that happened after a time, in order of arrival. */
	async function* storedUpdates(conversationId: string, time: bigint | undefined): AsyncGenerator<Updates> {
		const later: EventCondition[] = time === undefined ? [] : [{ kind: "happened", from: time + 1n }];
		const conditions: EventCondition[] = [{ kind: "one_of", field: "kind", values: [STATE_UPDATE] }, ...later];
		for (let after = 0n; ; ) {
			const query = { conversationId, after, conditions, limit: 1000, maxBytes: PAGE_BYTES };
			const page = await store.events.list(query);
			const last = page.at(-1);
			if (last === undefined) return;
			yield page.flatMap(({ event, happenedAt }) => ("unreadable" in event ? [] : [{ event, happenedAt }]));
			after = last.sequence;
		}
	}
}

/** Extends the result so far by that of the last updates, which were applied to `current`. */
function extend(before: Progress | undefined, current: CurrentRecord, result: AppliedUpdates): Progress {
	if (before === undefined) return { ...result, current };
	const { record } = before.current;
	const [first, last] = [before.version, result.version];
	const merge = record === undefined ? mergeRecord : mergeDeltas;
	const version =
		first === undefined || last === undefined
			? (last ?? first)
			: { ...last, record: mergeProtected(first.record, last.record, merge) };
	return { ...result, version, current: before.current, refused: [...before.refused, ...result.refused] };
}

function recordAfter({ current, memberTimes, version }: Progress): CurrentRecord {
	if (version === undefined) return { ...current, memberTimes };
	const { record } = current;
	return {
		...current,
		memberTimes,
		record: record === undefined ? version.record : mergeProtected(record, version.record, mergeRecord),
	};
}

/** Returns the conversation id of an encoded IngestConversationEventsRequest, as far as it can be read. */
export function conversationIdIn(request: Uint8Array): string {
	let id = "";
	try {
		const reader = new BinaryReader(request);
		while (reader.pos < reader.len) {
			const [field, type] = reader.tag();
			if (field === ID_FIELD && type === WireType.LengthDelimited) id = reader.string();
			else reader.skip(type, field);
		}
	} catch {
		// The intake refuses the request.
	}
	return parseUuid(id) ?? id;
}
