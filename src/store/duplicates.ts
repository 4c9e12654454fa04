import { type CallSignal, ServiceError } from "../errors.ts";
import { compact, compactAll } from "../memory.ts";
import type { AppendedUpdate, NewEvents, NewUpdate } from "./entries.ts";
import type { HeadState } from "./head.ts";
import type { StoredRecord, Unreadable } from "./values.ts";

/**
 * Detects duplicates: a posted record that repeats the newest posted one of its conversation. Records with different
 * bytes are compared outside of the transaction. The judgement is passed to the next attempt to append.
 */

/** A request to an engine to append an update. */
export interface AppendRequest {
	readonly update: NewUpdate;
	/** The judgement of the {@link PossibleDuplicate} that an earlier attempt returned. */
	readonly judged: Judgement | undefined;
}

/** The requests that engines append in groups: updates and batches of events. */
export type GroupRequest = AppendRequest | NewEvents;

/** Result of an attempt that wrote nothing, because the newest posted record may be the same with different bytes. */
export interface PossibleDuplicate {
	/** Sequence of the newest posted update. */
	readonly candidateSequence: bigint;
	readonly record: Uint8Array;
}

/** Whether an update has the same record as the one with this sequence; or it is no duplicate, whichever is the newest. */
export type Judgement = { readonly sequence: bigint; readonly same: boolean } | "no duplicate";

/**
 * Maximum number of judgements of one record. Another one is needed only when a concurrent post became the newest
 * update meanwhile. With that many concurrent posts none is certain to be the newest, and the record is stored.
 */
const MAX_JUDGEMENTS = 3;

/**
 * Appends an update by calls of an engine's `attempt`. Judges the record and tries again whenever it may be a
 * duplicate.
 *
 * @param arriving encoded record of the update
 */
export async function appendJudged(
	attempt: (judged: Judgement | undefined) => Promise<AppendedUpdate | PossibleDuplicate>,
	arriving: Uint8Array,
	isSameRecord: IsSameRecord,
): Promise<AppendedUpdate> {
	let judged: Judgement | undefined;
	for (let judgements = 0; ; judgements += 1) {
		const result = await attempt(judged);
		if ("sequence" in result) return result;
		judged = judgements < MAX_JUDGEMENTS ? await judge(result, arriving, isSameRecord) : "no duplicate";
	}
}

async function judge(
	{ candidateSequence, record }: PossibleDuplicate,
	arriving: Uint8Array,
	isSameRecord: IsSameRecord,
): Promise<Judgement> {
	try {
		return { sequence: candidateSequence, same: await isSameRecord(record, arriving) };
	} catch (error) {
		if (error instanceof ServiceError && error.kind === "unavailable") throw error;
		// A stored record that cannot be compared is no reason to reject the arriving one.
		return { sequence: candidateSequence, same: false };
	}
}

/**
 * Resolves to whether two encoded records are the same. Engines call it for a possible duplicate whose bytes differ
 * from those of the stored record: map entries have no order, and equal secrets have different ciphertexts.
 */
export type IsSameRecord = (stored: Uint8Array, arriving: Uint8Array) => Promise<boolean>;

/** The newest posted update of a conversation, as it is stored. */
export interface StoredPost extends Pick<AppendedUpdate, "change" | "current"> {
	/** Reads the record of the update with this sequence. */
	readonly read: (sequence: bigint) => Promise<StoredRecord | Unreadable>;
}

/**
 * Returns the result for an update that is a duplicate of the newest posted one, or may be one: both have the same
 * `updated_at` and the same length. A record without `updated_at` describes the state at its arrival, so it is no duplicate
 * once events have changed the record. Returns undefined when it is none.
 *
 * @param post undefined when the newest posted update is gone
 */
export async function findDuplicate(
	{ update, judged }: AppendRequest,
	{ newestPosted, sequence: current, hasUnappliedEvents }: HeadState,
	post: StoredPost | undefined,
): Promise<AppendedUpdate | PossibleDuplicate | undefined> {
	if (post === undefined || newestPosted === undefined || judged === "no duplicate") return undefined;
	const { bytes } = update.record;
	const { updatedAt } = update.facts;
	const { sequence } = newestPosted;
	if (newestPosted.updatedAt !== updatedAt || newestPosted.size !== bytes.byteLength) return undefined;
	if (updatedAt === undefined && current > sequence) return undefined;
	if (judged?.sequence === sequence) {
		if (!judged.same) return undefined;
	} else {
		const record = await post.read(sequence);
		// When the stored record cannot be read, the arriving one is stored.
		if ("unreadable" in record) return undefined;
		if (Buffer.compare(record.bytes, bytes) !== 0) return { candidateSequence: sequence, record: record.bytes };
	}
	return { sequence, duplicate: true, change: post.change, current: post.current, hasUnappliedEvents };
}

/** The part of a {@link CallSignal} that can cross to a thread. */
export interface SenderDeadline {
	readonly senderDeadline: CallSignal["deadline"];
}

/**
 * Returns a batch without what is indexed of it, with its byte strings in buffers that hold nothing else, because whole buffers
 * cross to a thread.
 */
export function compactBatch({ indexed: _, ...batch }: NewEvents): NewEvents {
	const texts = compactAll(batch.events.map(({ text }) => text));
	const events = batch.events.map((event, index) => ({ ...event, text: texts[index] ?? event.text }));
	const { effect } = batch;
	if (effect?.version === undefined) return { ...batch, events };
	const { summary, record, ...others } = effect.version;
	const compacted = { summary: compact(summary), record: { ...record, bytes: compact(record.bytes) } };
	return { ...batch, events, effect: { ...effect, version: { ...others, ...compacted } } };
}

/** Returns the byte strings of a request. */
export function byteStringsOf(request: GroupRequest): Uint8Array[] {
	if ("update" in request) return [request.update.record.bytes, request.update.summary];
	const { events, effect } = request;
	const { version } = effect ?? {};
	return [...events.map(({ text }) => text), ...(version === undefined ? [] : [version.summary, version.record.bytes])];
}

/** Returns the number of bytes of records and events by which the size of a group is bounded. */
export function bytesOf(request: GroupRequest): number {
	return byteStringsOf(request).reduce((size, { byteLength }) => size + byteLength, 0);
}
