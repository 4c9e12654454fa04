import { hash } from "node:crypto";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { readMembers } from "../record/record-delta.ts";
import type { FoundTitle, FoundTitles } from "./text-index.ts";
import { bigint, blob, boolean, integer, nullable, type Row, text } from "./values.ts";

/** Maximum number of updates that `TextIndex.findChangedTitles` examines. */
export const EXAMINED_UPDATES = 200;

/** An update that `TextIndex.findChangedTitles` examines. */
export interface ExaminedUpdate {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly current: boolean;
	/** Encoded `ConversationSummary`. */
	readonly summary: Uint8Array;
	/** Digest of the title of the conversation that is indexed; undefined without one. */
	readonly indexed: number | undefined;
}

/** Reads a row with the columns of an update, and with the `digest` of `search_titles`. Both engines name them alike. */
export function examinedUpdateFrom(row: Row): ExaminedUpdate {
	return {
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		current: boolean(row.current),
		summary: blob(row.summary),
		indexed: nullable(integer, row.digest),
	};
}

/** @param updates in their order, at most {@link EXAMINED_UPDATES} */
export function foundTitles(updates: readonly ExaminedUpdate[]): FoundTitles {
	const read = updates.flatMap((update) => {
		const title = update.current ? titleOf(update.summary) : undefined;
		return title === undefined ? [] : [{ ...update, title }];
	});
	const current = Map.groupBy(read, ({ conversationId }) => conversationId);
	return {
		titles: [...current.values()].flatMap((of) => foundTitle(of)),
		last: updates.at(-1)?.sequence,
		hasMore: updates.length === EXAMINED_UPDATES,
	};
}

/** @param updates those of a conversation that became current, in their order */
function foundTitle(updates: readonly (ExaminedUpdate & { readonly title: string })[]): FoundTitle[] {
	const last = updates.at(-1);
	if (last === undefined) return [];
	const { conversationId, title, indexed } = last;
	const digest = title === "" ? undefined : hash("sha256", title, "buffer").readUIntBE(0, 6);
	return digest === indexed ? [] : [{ conversationId, digest: digest ?? 0, title }];
}

const TITLE = ConversationSummarySchema.field.title.number;
const TITLE_ONLY = new Set([TITLE]);

/**
 * Reads the title of an encoded summary, without decoding the rest of it. Empty without a title; undefined if the summary
 * is damaged, which must not end the indexing of all others.
 */
function titleOf(summary: Uint8Array): string | undefined {
	try {
		const title = readMembers(summary, TITLE_ONLY).get(TITLE);
		return title === undefined ? "" : new TextDecoder().decode(title);
	} catch {
		return undefined;
	}
}
