import { create, toBinary } from "@bufbuild/protobuf";
import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import { concatBytes } from "../record/record-delta.ts";
import { type Activity, encodeActivity, isOlderThanEvents, shownError } from "./activity.ts";
import { microsecondsOf } from "./condition.ts";
import type {
	EventEffect,
	NewEvents,
	NewUpdate,
	RecordFacts,
	RecordState,
	RecordVersion,
	StoredUpdate,
	UpdateTimes,
} from "./entries.ts";
import type { OpenGaps } from "./gaps.ts";
import { changeBetween, comparableTime, compare, decide, orderTime } from "./ordering.ts";
import type { StoredRecord } from "./values.ts";

/** What the head of a conversation with a record has of this record: its next update is derived from it. */
export interface HeadState extends Pick<RecordState, "revision" | "memberTimes" | "postedAt" | "hasUnappliedEvents"> {
	/** Sequence of the current update. */
	readonly sequence: bigint;
	readonly status: Status;
	/** The time by which the current record is ordered: see ordering.ts. */
	readonly orderTime: bigint | undefined;
	/** `created_at` of the records of the conversation's present life (see ordering.ts); undefined while none has it. */
	readonly lifeBeganAt: bigint | undefined;
	/** `created_at` of the current record; if it has none, the time of receipt of the conversation's first update. */
	readonly createdAt: bigint;
	/** `updated_at` of the current record; if it has none, the time of receipt of the current update. */
	readonly updatedAt: bigint;
	/** When the present or last run started: when the status last became `running`. Undefined when it never did. */
	readonly runStartedAt: bigint | undefined;
	/** The posted update with the largest sequence; undefined when no record was posted. */
	readonly newestPosted: NewestPosted | undefined;
}

interface NewestPosted {
	readonly sequence: bigint;
	readonly updatedAt: bigint | undefined;
	/** Size of its record in bytes. */
	readonly size: number;
}

/**
 * Where lists have a conversation without a record: it has no update, so it comes after all that have one, in the order of
 * its newest event. The engines tell it from a sequence by its sign.
 */
const WITHOUT_RECORD = 2n ** 63n;

/** Returns whether the position of a conversation in lists is the sequence of its current update. */
export function isSequence(position: bigint): boolean {
	return position > 0n;
}

/** Returns the position in lists of a conversation without a record. */
export function positionOfEvents(newestEvent: bigint): bigint {
	return newestEvent - WITHOUT_RECORD;
}

/** An update as an engine writes it. */
export interface WrittenUpdate extends Omit<StoredUpdate, "record" | "summary" | "owner">, StoredForm {
	/** Encoded summary without the fields of the activity. */
	readonly summary: Uint8Array;
	/** Encoded summary fields of the activity without the sequence of the error; undefined when there are none. */
	readonly activity: Uint8Array | undefined;
	/** Sequence of the event whose error the summary shows; undefined when it shows none. */
	readonly errorSequence: bigint | undefined;
	/** Those of the summary and the activity. */
	readonly times: UpdateTimes;
}

/** The form in which the record of an update is stored. */
export interface StoredForm {
	readonly record: StoredRecord;
	/** Sequence of the update whose record is the base of this delta; undefined for a whole record. */
	readonly base: bigint | undefined;
	/** Size of the whole record in bytes: exact for a whole record, an upper bound for a delta. */
	readonly size: number;
}

/** An update to write, and the state of its conversation afterwards. */
export interface NextUpdate {
	readonly written: WrittenUpdate;
	readonly after: HeadState;
}

/** What an update is derived from. */
interface ToWrite {
	/** Undefined for a conversation without a record. */
	readonly before: HeadState | undefined;
	/** The activity and the gaps after the request. */
	readonly activity: Activity | undefined;
	readonly gaps: OpenGaps | undefined;
	/** Sequence of the update. */
	readonly sequence: bigint;
}

/** A posted record, and the state before it. */
interface PostToWrite extends ToWrite {
	readonly update: NewUpdate;
}

/** Derives the update and the next state of a conversation from a posted record. */
export function planPostedUpdate(of: PostToWrite): NextUpdate {
	const { update, before, activity, sequence } = of;
	const { receivedAt, record, facts } = update;
	const { status, updatedAt } = facts;
	const time = orderTime(updatedAt, receivedAt);
	const lifeBeganAt = lifeOf(facts, receivedAt);
	const known = before && {
		status: before.status,
		time: comparableTime(before.orderTime, receivedAt),
		lifeBeganAt: comparableTime(before.lifeBeganAt, receivedAt),
	};
	const { current, change } = decide(known, { status, time, lifeBeganAt });
	const newestPosted = { sequence, updatedAt, size: record.bytes.byteLength };
	const times = timesOf(facts, before, receivedAt);
	const postedAt = stateTime(of, time ?? receivedAt, compare(lifeBeganAt, known?.lifeBeganAt) === 0);
	const runStartedAt = current ? runStart(before, status, time ?? receivedAt) : before?.runStartedAt;
	const origin = update.isFetched ? UpdateOrigin.RECONCILED : UpdateOrigin.POSTED;
	const encoded = withTimes(update.summary, facts, times);
	const own = { change, current, origin, summary: encoded, times, ...wholeForm(record) };
	const written = writtenOf(update, of, runStartedAt, own);
	if (before !== undefined && !current) return { written, after: { ...before, newestPosted } };
	const after = {
		sequence,
		status,
		orderTime: time,
		lifeBeganAt: lifeBeganAt ?? before?.lifeBeganAt,
		...times,
		runStartedAt,
		newestPosted,
		// Unique, even if the conversation was removed and this is the first record of a new one with the same id.
		revision: sequence,
		memberTimes: undefined,
		postedAt,
		hasUnappliedEvents: isOlderThanEvents({ status, postedAt }, activity),
	};
	return { written, after };
}

/** Returns when the life of a conversation began that a record belongs to; undefined when it is not known. */
function lifeOf({ createdAt }: RecordFacts, receivedAt: bigint): bigint | undefined {
	return comparableTime(createdAt, receivedAt);
}

/**
 * Returns whether a fetched record becomes the current one of a conversation: it belongs to a later life, or has a later time
 * and no deletion is reported. At equal times the posted record stays, because it is what the sender wrote then.
 */
export function replacesAsFetched(
	facts: RecordFacts,
	{ status, orderTime: before, postedAt, lifeBeganAt }: HeadState,
	receivedAt: bigint,
): boolean {
	const life = compare(lifeOf(facts, receivedAt), comparableTime(lifeBeganAt, receivedAt));
	if (life !== 0) return life > 0;
	if ([status, facts.status].includes(Status.DELETING)) return false;
	const time = orderTime(facts.updatedAt, receivedAt);
	const last = comparableTime(before ?? postedAt, receivedAt);
	return time !== undefined && (last === undefined || time > last);
}

/**
 * Returns the time after which events override a posted record. A fetched one has the state that the agent server saved
 * last, which can be older than its time, such as while a pause waits for the end of a step: events count that are later
 * than the record before, except those until the last one that it names, if no later one is known.
 */
function stateTime({ update, before, activity }: PostToWrite, time: bigint, isSameLife: boolean): bigint | undefined {
	if (!update.isFetched || before === undefined || !isSameLife) return time;
	const { leaf } = update;
	const last = leaf !== undefined && leaf === activity?.leaf?.text ? activity.leaf.at : undefined;
	const { postedAt } = before;
	return last !== undefined && (postedAt === undefined || last > postedAt) ? last : postedAt;
}

/** Returns when the last run started, once the status has become `status` at `time`. */
function runStart(
	before: Pick<HeadState, "status" | "runStartedAt"> | undefined,
	status: Status,
	time: bigint,
): bigint | undefined {
	return status === Status.RUNNING && before?.status !== Status.RUNNING ? time : before?.runStartedAt;
}

type Times = Pick<HeadState, "createdAt" | "updatedAt">;

/** Returns the times by which lists and watches filter: those of a record, and times of receipt where it has none. */
function timesOf(facts: RecordFacts, before: Times | undefined, receivedAt: bigint): Times {
	return {
		createdAt: facts.createdAt ?? before?.createdAt ?? receivedAt,
		updatedAt: facts.updatedAt ?? receivedAt,
	};
}

/** Returns an encoded summary with the times that its record lacks. */
function withTimes(encoded: Uint8Array, facts: RecordFacts, { createdAt, updatedAt }: Times): Uint8Array {
	if (facts.createdAt !== undefined && facts.updatedAt !== undefined) return encoded;
	const missing = create(ConversationSummarySchema, {
		...(facts.createdAt === undefined ? { createdAt: fromMicroseconds(createdAt) } : {}),
		...(facts.updatedAt === undefined ? { updatedAt: fromMicroseconds(updatedAt) } : {}),
	});
	return concatBytes([encoded, toBinary(ConversationSummarySchema, missing)]);
}

/** Returns an update with what all have in common. */
function writtenOf(
	{ conversationId, receivedAt, poster }: Pick<NewUpdate, "conversationId" | "receivedAt" | "poster">,
	{ before, activity, gaps, sequence }: ToWrite,
	runStartedAt: bigint | undefined,
	{ times, ...own }: Pick<WrittenUpdate, "change" | "current" | "origin" | "summary"> & StoredForm & { times: Times },
): WrittenUpdate {
	return {
		conversationId,
		sequence,
		receivedAt,
		previousSequence: before?.sequence,
		sender: poster?.sender,
		activity: encodeActivity(activity, runStartedAt, gaps),
		errorSequence: shownError(activity, runStartedAt)?.sequence,
		times: { ...times, lastActivityAt: activity?.lastAt },
		...own,
	};
}

/** A record version that state updates produced, and the state before it. */
interface VersionToWrite extends ToWrite {
	readonly batch: Pick<NewEvents, "conversationId" | "receivedAt" | "poster" | "isFetched">;
	readonly effect: EventEffect;
	readonly version: RecordVersion;
}

/** Derives the update and the next state of a conversation from a version that state updates produced. */
export function planEventUpdate(of: VersionToWrite, form: StoredForm): NextUpdate {
	const { batch, effect, version, before, sequence } = of;
	const { receivedAt } = batch;
	const { status } = version.facts;
	const { change } =
		before === undefined
			? decide(undefined, { status, time: undefined, lifeBeganAt: undefined })
			: { change: changeBetween(before.status, status) };
	const times = timesOf(version.facts, before, receivedAt);
	const runStartedAt = version.runStartedAt ?? runStart(before, status, version.statusAt ?? receivedAt);
	const origin = batch.isFetched ? UpdateOrigin.RECONCILED : UpdateOrigin.EVENTS;
	const encoded = withTimes(version.summary, version.facts, times);
	const own = { change, current: true, origin, summary: encoded, times, ...form };
	const written = writtenOf(batch, of, runStartedAt, own);
	const { newestPosted } = before ?? {};
	const posted = { orderTime: before?.orderTime, lifeBeganAt: before?.lifeBeganAt, postedAt: before?.postedAt };
	const state = { sequence, status, ...times, runStartedAt, ...posted, newestPosted };
	return { written, after: stateAfterEvents(state, effect) };
}

/**
 * Returns the revision of a conversation's record state: see `RecordState.revision`.
 *
 * @param state undefined for a conversation without a record
 * @param activity undefined for a conversation that has had no event
 */
export function revisionOf(
	state: Pick<HeadState, "revision"> | undefined,
	activity: Pick<Activity, "eventCount"> | undefined,
): bigint {
	return state?.revision ?? -(activity?.eventCount ?? 0n);
}

/** Returns the state after the state updates of a batch. */
export function stateAfterEvents(
	before: Omit<HeadState, "revision" | "memberTimes" | "hasUnappliedEvents">,
	effect: EventEffect,
): HeadState {
	return { ...before, revision: effect.next, memberTimes: effect.memberTimes, hasUnappliedEvents: false };
}

/** Returns what the summary of a record says of it. */
export function factsOf(summary: ConversationSummary): RecordFacts {
	return {
		status: summary.executionStatus,
		createdAt: microsecondsOf(summary.createdAt),
		updatedAt: microsecondsOf(summary.updatedAt),
		source: summary.forkedFromConversationId,
		parent: summary.parentConversationId,
	};
}

/** Returns the stored form of a whole record. */
export function wholeForm(record: StoredRecord): StoredForm {
	return { record, base: undefined, size: record.bytes.byteLength };
}
