import type { Erasure } from "./erasure.ts";
import type { GapOf } from "./gaps.ts";
import { mayPost } from "./owners.ts";
import { bigint, blob, boolean, integer, nullable, type Row, text } from "./values.ts";

/**
 * What the store keeps of posts that were refused. The room for them is limited: the oldest go first. A refused batch that
 * was accepted nevertheless is never removed for room.
 */

/** The forms of posts: a record or a batch of events, as JSON or as the encoded request of an RPC. */
export const postForms = ["record_json", "events_json", "record_message", "events_message"] as const;
export type PostForm = (typeof postForms)[number];

/** A refused post. Times are microseconds since the Unix epoch. */
export interface RefusedPost {
	/** Grows with the time of receipt. */
	readonly id: bigint;
	readonly receivedAt: bigint;
	/** When the last one of `requests` arrived. */
	readonly lastAt: bigint;
	/** 1, or the number of requests without a valid key from the address `peer` in some time. */
	readonly requests: bigint;
	/** Name of the key or certificate; undefined for requests without a valid key. */
	readonly sender: string | undefined;
	readonly owner: string | undefined;
	/** Address of a client without a valid key. */
	readonly peer: string | undefined;
	/** Path of the route or RPC. */
	readonly route: string;
	readonly form: PostForm;
	/** Kind of the refusal, such as `invalid_record`. */
	readonly kind: string;
	/** JSON text of the reasons. The store does not read it. */
	readonly reasons: string;
	/** Undefined when it is not known. */
	readonly conversationId: string | undefined;
	/** Bytes of the body as it arrived; 0 when it was not read. */
	readonly size: number;
	/** Whether the post was answered with success. */
	readonly accepted: boolean;
	/** When it was taken in last without success. */
	readonly retriedAt: bigint | undefined;
	/** Whether the body is stored. */
	readonly hasBody: boolean;
}

/** A refused post with its sealed body; undefined when it is not stored. */
export interface RefusedPostRow extends Omit<RefusedPost, "hasBody"> {
	readonly body: Uint8Array | undefined;
}

/** A refused batch that is answered with success. */
export interface AcceptedPost extends RefusedPostRow {
	readonly conversationId: string;
}

/**
 * Whether a post of an erased conversation is not stored. One whose sender may not post to the conversation is no part of
 * it.
 */
export function isOfErased({ owner }: Pick<RefusedPost, "owner">, erasure: Erasure | undefined): boolean {
	return erasure !== undefined && mayPost(owner, erasure);
}

/** Returns the gap that an accepted batch leaves in its conversation. */
export function gapOfAccepted(
	{ id, conversationId, receivedAt }: Pick<AcceptedPost, "id" | "conversationId" | "receivedAt">,
	after: string | undefined,
): GapOf {
	return { conversationId, kind: "refused_batch", missing: String(id), after, since: receivedAt };
}

/** The room for refused posts. */
export interface RefusedRoom {
	/** Maximum sum of {@link bytesOf}. */
	readonly maxBytes: number;
	/** Maximum number of rows about clients without a valid key. */
	readonly maxPeers: number;
}

/** Which refused posts are too old. Times are microseconds since the Unix epoch. */
export interface RefusedAge {
	/** Posts that were received before are removed, except accepted ones. */
	readonly keptSince: bigint;
	/** Accepted posts that were received before are removed, too; undefined: none. */
	readonly acceptedSince: bigint | undefined;
}

export interface RefusedQuery {
	/** Only posts of this owner. */
	readonly owner?: string | undefined;
	/** The newest first, before this id. */
	readonly before?: bigint | undefined;
	/** Only records of this conversation. */
	readonly recordOf?: string | undefined;
	/** In place of `before`: the oldest first, after this id, and only posts whose body is stored. */
	readonly after?: bigint | undefined;
	readonly limit: number;
}

/** The room that refused posts take. */
export interface RefusedUsage {
	readonly posts: number;
	readonly bytes: number;
}

/** A retry without success: why the post is still refused. */
export interface StillRefused extends Pick<RefusedPost, "id" | "kind" | "reasons"> {
	readonly retriedAt: bigint;
}

/** The refused posts of a store. A change resolves when it is on disk. Its methods fail as those of the store do. */
export interface RefusedPostTable {
	/**
	 * Stores posts, and removes the oldest ones for which there is no room. One whose id is stored already adds its requests.
	 * Posts of an erased conversation are not stored: see {@link isOfErased}.
	 *
	 * @returns the number of posts that were removed
	 */
	add(posts: readonly RefusedPostRow[], room: RefusedRoom): Promise<number>;
	/**
	 * Stores a refused batch of events that is accepted, and opens a gap of its conversation, if there is room beside the
	 * accepted ones. Others make room for it. A batch of an erased conversation is not stored.
	 *
	 * @returns the number of posts that were removed; undefined when there is no room, or the conversation belongs to
	 *   another owner
	 */
	accept(post: AcceptedPost, room: RefusedRoom): Promise<number | undefined>;
	/** Removes posts that are too old, with the gaps of accepted ones. Returns their number. */
	expire(age: RefusedAge): Promise<number>;
	/** Returns posts by their ids. */
	list(query: RefusedQuery): Promise<readonly RefusedPost[]>;
	/** @param owner returns only a post of this owner */
	get(id: bigint, owner?: string): Promise<RefusedPostRow | undefined>;
	/** Notes why a post is still refused. */
	setReasons(refused: StillRefused): Promise<void>;
	/** Removes a post that was taken in, and closes its gap if it was accepted. */
	remove(id: bigint): Promise<void>;
	usage(): Promise<RefusedUsage>;
}

/** Bytes that a row counts for beside its texts and its body. */
const ROW_BYTES = 512;

/** Returns the bytes that a post counts for. */
export function bytesOf({ body, reasons, route }: RefusedPostRow): number {
	return ROW_BYTES + reasons.length + route.length + (body?.byteLength ?? 0);
}

/** The columns of a row, in the order of {@link refusedValues}. */
const COLUMNS = [
	...["id", "received_at", "last_at", "requests", "sender", "owner", "peer", "route", "form", "kind", "reasons"],
	...["conversation_id", "size", "accepted", "retried_at", "bytes", "body"],
];
/** The columns that {@link refusedFrom} reads. */
const SHOWN = `${COLUMNS.slice(0, -2).join()}, body IS NOT NULL AS has_body`;

/** Returns SQL that inserts a row, or adds the requests of one that exists. */
export function insertSql(table: string, placeholder: (index: number) => string): string {
	const values = COLUMNS.map((_, index) => placeholder(index + 1));
	return `
		INSERT INTO ${table} AS r (${COLUMNS.join()}) VALUES (${values.join()})
		ON CONFLICT (id) DO UPDATE SET requests = r.requests + excluded.requests, last_at = excluded.last_at
	`;
}

/**
 * Returns the values of a row's columns.
 *
 * @param boolean returns a boolean as the engine stores it
 */
export function refusedValues<Stored>(row: RefusedPostRow, boolean: (value: boolean) => Stored) {
	return [
		...([row.id, row.receivedAt, row.lastAt, row.requests, row.sender ?? null, row.owner ?? null] as const),
		...([row.peer ?? null, row.route, row.form, row.kind, row.reasons, row.conversationId ?? null, row.size] as const),
		...([boolean(row.accepted), row.retriedAt ?? null, bytesOf(row), row.body ?? null] as const),
	] as const;
}

/** Returns the columns of a row. */
export function refusedColumns(row: RefusedPostRow) {
	return {
		id: row.id,
		received_at: row.receivedAt,
		last_at: row.lastAt,
		requests: row.requests,
		sender: row.sender,
		owner: row.owner,
		peer: row.peer,
		route: row.route,
		form: row.form,
		kind: row.kind,
		reasons: row.reasons,
		conversation_id: row.conversationId,
		size: row.size,
		accepted: row.accepted,
		retried_at: row.retriedAt,
		bytes: bytesOf(row),
		body: row.body,
	};
}

/** Maximum number of rows that are removed for room at once. */
const MAX_REMOVED = 20_000;

/** Returns statements that remove the posts for which there is no room. */
export function roomSql(table: string, { maxBytes, maxPeers }: RefusedRoom): readonly string[] {
	const excess = `(SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM ${table}) - ${maxBytes}`;
	return [
		`DELETE FROM ${table} WHERE peer IS NOT NULL AND id <= coalesce((
			SELECT id FROM ${table} WHERE peer IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET ${maxPeers}
		), 0)`,
		`DELETE FROM ${table} WHERE ${accepted(false)} AND id <= coalesce((
			SELECT max(id) FROM (
				SELECT id, CAST(sum(bytes) OVER (ORDER BY id) AS bigint) - bytes AS older FROM (
					SELECT id, bytes FROM ${table} WHERE ${accepted(false)} ORDER BY id LIMIT ${MAX_REMOVED}
				) oldest
			) summed WHERE older < ${excess}
		), 0)`,
	];
}

/** Returns the statement that removes the posts that are too old, except accepted ones. */
export function ageSql(table: string, { keptSince }: RefusedAge): string {
	return `DELETE FROM ${table} WHERE ${accepted(false)} AND id < ${idsFrom(keptSince)}`;
}

/** Returns the query for the ids of the accepted posts that are too old; undefined when none is. */
export function oldAcceptedSql(table: string, { acceptedSince }: RefusedAge): string | undefined {
	if (acceptedSince === undefined) return undefined;
	return `SELECT id FROM ${table} WHERE ${accepted(true)} AND id < ${idsFrom(acceptedSince)}`;
}

/** Returns the query for the `bytes` that accepted posts take. */
export function acceptedBytesSql(table: string): string {
	return `SELECT CAST(coalesce(sum(bytes), 0) AS bigint) AS bytes FROM ${table} WHERE ${accepted(true)}`;
}

/** The column is a boolean in one engine, and the number 0 or 1 in the other; both compare with these words. */
function accepted(is: boolean): string {
	return `accepted = ${is ? "TRUE" : "FALSE"}`;
}

/** Number of ids for each microsecond. */
const IDS = 1000n;

/** Returns the smallest id of a post that is received at a time. */
export function idsFrom(receivedAt: bigint): bigint {
	return receivedAt * IDS;
}

/** Returns the SQL of a query, with the values of its parameters. */
export function listSql(
	table: string,
	{ owner, recordOf, before, after, limit }: RefusedQuery,
	placeholder: (index: number) => string,
): { readonly sql: string; readonly values: readonly (string | bigint)[] } {
	const values: (string | bigint)[] = [];
	const bind = (value: string | bigint) => placeholder(values.push(value));
	const tests = ["TRUE"];
	if (owner !== undefined) tests.push(`owner = ${bind(owner)}`);
	if (recordOf !== undefined)
		tests.push(`conversation_id = ${bind(recordOf)}`, "form IN ('record_json', 'record_message')");
	if (before !== undefined) tests.push(`id < ${bind(before)}`);
	if (after !== undefined) tests.push(`id > ${bind(after)}`, "body IS NOT NULL");
	const order = after === undefined ? "DESC" : "ASC";
	return {
		sql: `SELECT ${SHOWN} FROM ${table} WHERE ${tests.join(" AND ")} ORDER BY id ${order} LIMIT ${limit}`,
		values,
	};
}

/** Reads a row that {@link listSql} returns. */
export function refusedFrom(row: Row): RefusedPost {
	return { ...commonFrom(row), hasBody: boolean(row.has_body) };
}

/** Reads a whole row. */
export function refusedRowFrom(row: Row): RefusedPostRow {
	return { ...commonFrom(row), body: nullable(blob, row.body) };
}

function commonFrom(row: Row): Omit<RefusedPost, "hasBody"> {
	return {
		id: bigint(row.id),
		receivedAt: bigint(row.received_at),
		lastAt: bigint(row.last_at),
		requests: bigint(row.requests),
		sender: nullable(text, row.sender),
		owner: nullable(text, row.owner),
		peer: nullable(text, row.peer),
		route: text(row.route),
		form: formFrom(text(row.form)),
		kind: text(row.kind),
		reasons: text(row.reasons),
		conversationId: nullable(text, row.conversation_id),
		size: integer(row.size),
		accepted: boolean(row.accepted),
		retriedAt: nullable(bigint, row.retried_at),
	};
}

function formFrom(stored: string): PostForm {
	const form = postForms.find((known) => known === stored);
	if (form === undefined) throw new TypeError(`${JSON.stringify(stored)} is no form of a post`);
	return form;
}
