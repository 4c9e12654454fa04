import { fromBinary } from "@bufbuild/protobuf";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { type CallSignal, isSenderGone, SENDER_GONE } from "../../call-signal.ts";
import { ServiceError } from "../../errors.ts";
import { mergeProtected, mergeRecord } from "../../record/record-delta.ts";
import { addEvents, eventsToAdd, leafOver } from "../activity.ts";
import { microsecondsOf } from "../condition.ts";
import {
	deltaForm,
	deltaOverBase,
	firstForm,
	type NextUpdate,
	planLiveVersion,
	planPostedUpdate,
	revisionOf,
	type StoredForm,
	stateAfterEvents,
	wholeForm,
} from "../conversation-state.ts";
import {
	type AppendRequest,
	findRepetition,
	type GroupRequest,
	type PossibleRepetition,
	repetitionCandidate,
} from "../repetition.ts";
import type { Appended, AppendedEvents, NewEvent, NewEvents, NewLiveState, StoredRecord } from "../store.ts";
import {
	type KnownConversation,
	knownConversations,
	knownEventsQuery,
	knownQuery,
	type NewestPostedUpdate,
	readStoredRecords,
	type WholeRecord,
} from "./known.ts";
import { lockConversations } from "./locks.ts";
import { PROVISIONAL } from "./numbered-sql.ts";
import { encodeKey } from "./stored-text.ts";
import type { Session } from "./transaction.ts";
import type { WrittenGroup } from "./written-group.ts";

/** Until when a request may be written. */
export interface WriteLimits {
	/** Signal of the sender. */
	readonly signal: CallSignal | undefined;
	/** Time by performance.now() from which on the sender may have given up without a sign. */
	readonly until: number;
}

/** A request to append. */
export type SentRequest = GroupRequest & WriteLimits;

/** The error for a request that has waited for so long that its sender may have given up. */
const TOO_LATE = new ServiceError("unavailable", "the request could not be stored in time");

/** Result of a request of a group; its sequences may be provisional. Undefined as for `Store.appendEvents`. */
export type AppendResult = Appended | PossibleRepetition | AppendedEvents | undefined;

/** Outcome of a request of a group: its result, or the error for a request that may no longer be written. */
export type AppendOutcome = AppendResult | ServiceError;

/** The rows that a group writes, and the outcomes of its requests once these rows are on disk. */
export interface PlannedGroup {
	readonly written: WrittenGroup;
	readonly outcomes: readonly AppendOutcome[];
}

/**
 * Locks the conversations of a group, reads their state, and decides what each request changes. A request whose sender no
 * longer waits, or may have given up, changes nothing. The sender may have sent the same record to another replica, and a
 * newer one after it. From the time of the locks on, no other replica can store them before this group.
 */
export async function planGroup(session: Session, requests: readonly SentRequest[]): Promise<PlannedGroup> {
	const decoded = requests.map((request) => ("update" in request ? decodePost(request) : request));
	const planner = new Planner(session, await readKnown(session, decoded));
	const outcomes: AppendOutcome[] = [];
	for (const request of decoded) {
		if (isSenderGone(request.signal)) outcomes.push(SENDER_GONE);
		else if (performance.now() > request.until) outcomes.push(TOO_LATE);
		else outcomes.push("summary" in request ? planner.post(request) : await planner.addEvents(request));
	}
	return { written: planner.written, outcomes };
}

/** An append of an update, with its summary decoded. */
interface Post extends AppendRequest {
	readonly summary: ConversationSummary;
}

function decodePost<Request extends AppendRequest>(request: Request): Request & Post {
	return { ...request, summary: fromBinary(ConversationSummarySchema, request.update.summary) };
}

export function conversationOf(request: GroupRequest): string {
	return "update" in request ? request.update.conversationId : request.conversationId;
}

async function readKnown(
	session: Session,
	requests: readonly (Post | NewEvents)[],
): Promise<ReadonlyMap<string, KnownConversation>> {
	const ids = [...new Set(requests.map(conversationOf))];
	const batches = requests.flatMap((request) => ("update" in request ? [] : [request]));
	const versions = batches.flatMap(({ conversationId, live }) => (live?.version === undefined ? [] : [conversationId]));
	const events = batches.flatMap(({ conversationId, events }) =>
		events.map(({ eventId }) => ({ conversationId, key: encodeKey(eventId) })),
	);
	const [, rows = [], stored = []] = await session.query(
		lockConversations(ids),
		knownQuery(ids, versions),
		...(events.length === 0 ? [] : [knownEventsQuery(events)]),
	);
	const known = knownConversations(rows, stored);
	await readRepetitionCandidates(session, requests, known);
	return known;
}

/** Reads the newest posted records that the requests may repeat, unless the caller has compared them already. */
async function readRepetitionCandidates(
	session: Session,
	requests: readonly (Post | NewEvents)[],
	known: ReadonlyMap<string, KnownConversation>,
): Promise<void> {
	const wanted = new Map<bigint, NewestPostedUpdate>();
	for (const request of requests) {
		const found = known.get(conversationOf(request));
		if (!("summary" in request) || found?.state?.newestPosted === undefined) continue;
		const { update, summary, judged } = request;
		const { sequence } = found.state.newestPosted;
		const post = repetitionCandidate(
			found.state,
			microsecondsOf(summary.updatedAt),
			update.record,
			() => found.newestPosted,
		);
		if (post !== undefined && sequence !== judged?.sequence) wanted.set(sequence, post);
	}
	if (wanted.size === 0) return;
	const records = await readStoredRecords(session, [...wanted.keys()]);
	for (const [sequence, post] of wanted) post.record = records.get(sequence);
}

/** Decides what each request of a group changes, one request after the other. */
class Planner {
	readonly written: WrittenGroup = { updates: [], events: [], states: new Map(), activities: new Map() };
	readonly #session: Session;
	readonly #known: ReadonlyMap<string, KnownConversation>;

	constructor(session: Session, known: ReadonlyMap<string, KnownConversation>) {
		this.#session = session;
		this.#known = known;
	}

	post(request: Post): Appended | PossibleRepetition {
		const { update, summary } = request;
		const known = this.#conversation(update.conversationId);
		const { state, newestPosted } = known;
		const find = () =>
			newestPosted && { ...newestPosted, read: () => newestPosted.record ?? { unreadable: "the record is missing" } };
		const repetition = state && findRepetition(request, state, microsecondsOf(summary.updatedAt), find);
		if (repetition !== undefined) return repetition;
		const sequence = this.#nextUpdate();
		const next = planPostedUpdate(update, summary, known.state, known.activity, sequence);
		const { change, current } = next.written;
		known.newestPosted = { change, current, schemaVersion: update.record.schemaVersion, record: update.record };
		this.#write(known, next, summary);
		return { sequence, repeated: false, change, current, hasUnappliedEvents: next.after.hasUnappliedEvents };
	}

	/**
	 * Adds a batch of events.
	 *
	 * @returns undefined when nothing may be written: the batch has a live state, and the conversation's revision is not the
	 *   expected one or an event that changes the record is stored already
	 */
	async addEvents(batch: NewEvents): Promise<AppendedEvents | undefined> {
		const { conversationId, receivedAt, events, live } = batch;
		const known = this.#conversation(conversationId);
		const keys = new Map(events.map((event) => [event, encodeKey(event.eventId)]));
		const isStored = (event: NewEvent) => known.eventKeys.has(keys.get(event) ?? "");
		const added = eventsToAdd(batch, revisionOf(known.state, known.activity), isStored);
		if (added === undefined) return undefined;
		for (const event of added) {
			const key = keys.get(event) ?? "";
			known.eventKeys.add(key);
			this.written.events.push({ conversationId, receivedAt, event, key });
		}
		known.activity = addEvents(known.activity, events, added);
		if (added.size > 0 && known.activity !== undefined) this.written.activities.set(conversationId, known.activity);
		const newest = added.size === 0 ? 0n : PROVISIONAL + BigInt(this.written.events.length);
		const updateSequence = live && (await this.#applyLiveState(batch, live, known));
		return { stored: added.size, newest, updateSequence };
	}

	/**
	 * Applies the live state of a batch.
	 *
	 * @returns the sequence of the version that it makes; undefined when the record stays the same
	 */
	async #applyLiveState(batch: NewEvents, live: NewLiveState, known: KnownConversation): Promise<bigint | undefined> {
		const { version } = live;
		const { state: before, activity } = known;
		if (version === undefined) {
			if (before === undefined) return undefined;
			known.state = stateAfterEvents(before, live);
			const change = this.written.states.get(batch.conversationId);
			this.written.states.set(batch.conversationId, { state: known.state, summary: change?.summary });
			return undefined;
		}
		const summary = fromBinary(ConversationSummarySchema, version.summary);
		const sequence = this.#nextUpdate();
		const next = { batch, live, version, status: summary.executionStatus, before, activity, sequence };
		const form = await this.#storedForm(
			version.record,
			known,
			leafOver({ status: next.status, postedAt: before?.postedAt }, activity),
		);
		this.#write(known, planLiveVersion(next, form), summary);
		return sequence;
	}

	/** Returns the form in which the record of a live version is stored: a delta over the last whole record, or whole. */
	async #storedForm(record: StoredRecord, known: KnownConversation, leaf: string | undefined): Promise<StoredForm> {
		const { state, base } = known;
		if (state === undefined) return firstForm(record, leaf);
		if (base === undefined) throw new Error("the base of a conversation's current record is missing");
		const delta = deltaOverBase(record, leaf, known.delta);
		return (
			deltaForm(delta, base.sequence, base.size) ??
			wholeForm(mergeProtected(await this.#whole(base), delta, mergeRecord))
		);
	}

	async #whole({ sequence, record }: WholeRecord): Promise<StoredRecord> {
		const found = record ?? (await readStoredRecords(this.#session, [sequence])).get(sequence);
		if (found === undefined) throw new Error("the base record of a delta is missing");
		if ("unreadable" in found) throw new Error(found.unreadable);
		return found;
	}

	#write(known: KnownConversation, { written, after }: NextUpdate, summary: ConversationSummary): void {
		const { conversationId, record, base, size, sequence } = written;
		this.written.updates.push(written);
		known.state = after;
		const change = this.written.states.get(conversationId);
		this.written.states.set(conversationId, { state: after, summary: written.current ? summary : change?.summary });
		if (!written.current) return;
		known.delta = base === undefined ? undefined : record;
		if (base === undefined) known.base = { sequence, size, record };
	}

	#nextUpdate(): bigint {
		return PROVISIONAL + BigInt(this.written.updates.length + 1);
	}

	#conversation(id: string): KnownConversation {
		const known = this.#known.get(id);
		if (known === undefined) throw new Error("the conversation does not belong to the group");
		return known;
	}
}
