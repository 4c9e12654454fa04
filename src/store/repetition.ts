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

/**
 * Whether a record may repeat the newest posted one of its conversation: it has the same time, and the same length
 * unless another schema encoded the newest one. Without a time it says what holds at its arrival, so it repeats nothing
 * once events have changed the record.
 *
 * @param updatedAt the arriving record's, in microseconds since the Unix epoch
 * @param schemaVersionOf gives the schema version of a stored update; undefined when it is gone
 */
export function mayRepeat(
	{ newest, sequence }: ConversationState,
	updatedAt: bigint | undefined,
	{ bytes, schemaVersion }: StoredRecord,
	schemaVersionOf: (sequence: bigint) => number | undefined,
): boolean {
	if (newest === undefined || newest.updatedAt !== updatedAt) return false;
	if (updatedAt === undefined && sequence > newest.sequence) return false;
	if (newest.size === bytes.byteLength) return true;
	const stored = schemaVersionOf(newest.sequence);
	return stored !== undefined && stored !== schemaVersion;
}

/**
 * Whether a record that may repeat the newest posted one does; or the question that is to be judged first.
 *
 * @param readNewest reads the record of the newest posted update
 */
export function isRepetition(
	{ update, judged }: AppendRequest,
	newest: bigint,
	readNewest: () => StoredRecord | UnreadableRecord,
): boolean | PossibleRepetition {
	if (judged?.sequence === newest || judged?.sequence === "any") return judged.same;
	const stored = readNewest();
	// A record that cannot be read is stored again.
	if ("unreadable" in stored) return false;
	if (Buffer.compare(stored.bytes, update.record.bytes) === 0) return true;
	return { possiblyRepeats: newest, record: stored.bytes };
}
