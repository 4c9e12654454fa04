import { ServiceError } from "../errors.ts";
import type { ConversationState } from "./conversation-state.ts";
import type { Appended, IsSameRecord, NewEvents, NewUpdate, StoredRecord, UnreadableRecord } from "./store.ts";

/**
 * Whether a posted record repeats the newest posted one of its conversation. Whether two records with different bytes are
 * the same is judged outside of the transaction, and told to the next attempt to append.
 */

/** Asks an engine to append an update. */
export interface AppendRequest {
	readonly update: NewUpdate;
	/** What the answer to a {@link PossibleRepetition} is. */
	readonly judged: JudgedRepetition | undefined;
}

/** What an engine appends in groups: updates and batches of events. */
export type GroupRequest = AppendRequest | NewEvents;

/** The newest update of the conversation may be the same record, in other bytes. Nothing was written. */
export interface PossibleRepetition {
	readonly possiblyRepeats: bigint;
	readonly record: Uint8Array;
}

/** Whether an update repeats the one with this sequence; `any`: it counts as no repetition of whatever is the newest. */
export type JudgedRepetition =
	| { readonly sequence: bigint; readonly same: boolean }
	| { readonly sequence: "any"; readonly same: false };

/**
 * Most judgements of one record. Each is about another newest update, so the conversation has that many posts at a time,
 * and none of them is the newest for certain.
 */
const MAX_JUDGEMENTS = 3;

/**
 * Appends an update by an engine's `attempt`, with a judgement whenever it may be a repetition.
 *
 * @param arriving the update's record
 */
export async function appendJudged(
	attempt: (judged: JudgedRepetition | undefined) => Promise<Appended | PossibleRepetition>,
	arriving: Uint8Array,
	isSame: IsSameRecord,
): Promise<Appended> {
	let judged: JudgedRepetition | undefined;
	for (let judgements = 0; ; judgements += 1) {
		const answer = await attempt(judged);
		if ("sequence" in answer) return answer;
		judged = judgements < MAX_JUDGEMENTS ? await judge(answer, arriving, isSame) : { sequence: "any", same: false };
	}
}

async function judge(
	{ possiblyRepeats, record }: PossibleRepetition,
	arriving: Uint8Array,
	isSame: IsSameRecord,
): Promise<JudgedRepetition> {
	try {
		return { sequence: possiblyRepeats, same: await isSame(record, arriving) };
	} catch (error) {
		if (error instanceof ServiceError && error.kind === "unavailable") throw error;
		// A stored record that cannot be compared is no reason to refuse another one.
		return { sequence: possiblyRepeats, same: false };
	}
}

/** The newest posted update of a conversation, as it is stored. */
export interface StoredPost extends Pick<Appended, "change" | "current"> {
	readonly schemaVersion: number;
	readonly read: () => StoredRecord | UnreadableRecord;
}

/**
 * The newest posted update of a conversation if a record may repeat it: it has the same time, and the same length unless
 * another schema encoded the newest one. Without a time it says what holds at its arrival, so it repeats nothing once
 * events have changed the record.
 *
 * @param updatedAt the arriving record's, in microseconds since the Unix epoch
 * @param find gives the newest posted update; undefined when it is gone. Called only when the times are the same
 */
export function possiblyRepeated<Post extends Pick<StoredPost, "schemaVersion">>(
	{ newest, sequence }: ConversationState,
	updatedAt: bigint | undefined,
	{ bytes, schemaVersion }: StoredRecord,
	find: (sequence: bigint) => Post | undefined,
): Post | undefined {
	if (newest === undefined || newest.updatedAt !== updatedAt) return undefined;
	if (updatedAt === undefined && sequence > newest.sequence) return undefined;
	const post = find(newest.sequence);
	return newest.size === bytes.byteLength || post?.schemaVersion !== schemaVersion ? post : undefined;
}

/**
 * What an update is answered if it repeats the newest posted one of its conversation, or may; undefined when it does not.
 *
 * @param updatedAt the update's, in microseconds since the Unix epoch
 * @param find as {@link possiblyRepeated} takes it
 */
export function repetitionOf(
	{ update, judged }: AppendRequest,
	state: ConversationState,
	updatedAt: bigint | undefined,
	find: (sequence: bigint) => StoredPost | undefined,
): Appended | PossibleRepetition | undefined {
	const post = possiblyRepeated(state, updatedAt, update.record, find);
	const { newest, hasUnappliedEvents } = state;
	if (newest === undefined || post === undefined) return undefined;
	const { sequence } = newest;
	if (judged?.sequence === sequence || judged?.sequence === "any") {
		if (!judged.same) return undefined;
	} else {
		const record = post.read();
		// A record that cannot be read is stored again.
		if ("unreadable" in record) return undefined;
		if (Buffer.compare(record.bytes, update.record.bytes) !== 0)
			return { possiblyRepeats: sequence, record: record.bytes };
	}
	return { sequence, repeated: true, change: post.change, current: post.current, hasUnappliedEvents };
}
