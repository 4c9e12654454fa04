import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { BLOCK_BITS, EVER, type EventCondition, timeRangeOf } from "./condition.ts";
import type { EventQuery, RecordState, StoredEvent, StoredUpdate, UpdateQuery } from "./entries.ts";
import { listErasures, withErasures } from "./erasure.ts";
import { revisionOf } from "./head.ts";
import {
	ACTIVITY_COLUMNS,
	currentRecordFrom,
	isOfRow,
	joinedActivityFrom,
	RECORD_COLUMNS,
	readRecords,
	stateFrom,
	storedEventsFrom,
	updateFrom,
} from "./rows.ts";
import type { LogTable, RangeQuery, SequenceRange } from "./sequence-log.ts";
import { allOf, given, type Session, type Sql, sql } from "./session.ts";
import { bigint, bindable, integer, keyOf, nullable, text } from "./values.ts";

/** Reads of the logs of updates and events, and of the current record of a conversation. */

/** Returns which sequences a log has, and how far it was pruned: see `SequenceLog.range`. Later reads find all entries. */
export async function readRange(
	session: Session,
	{ log, query = {} }: { readonly log: LogTable; readonly query?: RangeQuery | undefined },
): Promise<SequenceRange> {
	const { all, isIn, dialect } = session;
	const { schema, newest } = dialect;
	const { conversationId, owner, afterRemoval } = query;
	const where = given([
		["log = ?", log],
		[isIn("conversation_id"), conversationId === undefined ? undefined : [conversationId]],
		["owner = ?", owner],
		["removal > ?", afterRemoval === undefined ? undefined : bindable(afterRemoval)],
	]);
	const ofSome = where.parameters.length > 1;
	const through = ofSome ? `(SELECT max(through) FROM ${schema}pruned WHERE ${where.text})` : "r.pruned_through";
	await session.settled(conversationId);
	const [row] = await all(
		`SELECT ${newest[log]} AS newest, r.last_removal, ${through} AS through FROM ${schema}removals r WHERE r.log = ?`,
		...(ofSome ? where.parameters : []),
		log,
	);
	return {
		newest: bigint(row?.newest),
		prunedThrough: nullable(bigint, row?.through) ?? 0n,
		lastRemoval: bigint(row?.last_removal),
	};
}

/** SQL columns of an update `u` and of the head `h` of its conversation that `updateFrom` reads. */
const UPDATE_COLUMNS = `
	h.conversation_id, h.owner, h.sender AS first_sender, u.sequence, u.change, u.current, u.origin,
	u.previous_sequence, u.received_at, u.summary, u.activity, u.error_sequence, u.sender
`;

/** See `Store.get`. */
export interface UpdateOf {
	readonly conversationId: string;
	readonly asOf: bigint | undefined;
	readonly owner: string | undefined;
}

/** Returns the current update of a conversation with the newest leaf, or the update that was current as of `asOf`. */
async function getUpdate(session: Session, query: UpdateOf): Promise<StoredUpdate | undefined> {
	const { conversationId, asOf, owner } = query;
	if (asOf !== undefined) return await getUpdateAsOf(session, { ...query, asOf: bindable(asOf) });
	const { all, isIn, dialect } = session;
	// The record of another owner's conversation is not read at all: the time of the answer must not tell that it exists.
	const rows = await all(
		`SELECT ${UPDATE_COLUMNS}, h.status, h.posted_at, ${ACTIVITY_COLUMNS} ${RECORD_COLUMNS}
		FROM ${dialect.schema}heads h JOIN ${dialect.schema}updates u ON ${isOfRow("u", "h")}
		LEFT JOIN ${dialect.schema}activities a ON a.conversation_id = h.conversation_id
		WHERE ${isIn("h.conversation_id")} ${owner === undefined ? "" : "AND h.owner = ?"}`,
		[conversationId],
		...(owner === undefined ? [] : [owner]),
	);
	const recordOf = await readRecords(session, rows);
	const [row] = rows;
	return row && updateFrom(row, currentRecordFrom(row, joinedActivityFrom(row), recordOf(row)));
}

async function getUpdateAsOf(
	session: Session,
	{ conversationId, asOf, owner }: UpdateOf & { readonly asOf: bigint },
): Promise<StoredUpdate | undefined> {
	const { all, isIn, dialect } = session;
	const { schema, join } = dialect;
	const [[row], [next]] = await Promise.all([
		all(
			`SELECT ${UPDATE_COLUMNS} ${RECORD_COLUMNS} FROM (
				SELECT e.conversation_id, e.sequence FROM ${schema}updates e
				WHERE ${isIn("e.conversation_id")} AND e.sequence <= ? AND e.current = TRUE
					${owner === undefined ? "" : "AND e.owner = ?"}
				ORDER BY e.sequence DESC LIMIT 1
			) p ${join} ${schema}updates u ON ${isOfRow("u", "p")}
			${join} ${schema}heads h ON h.conversation_id = p.conversation_id`,
			[conversationId],
			asOf,
			...(owner === undefined ? [] : [owner]),
		),
		all(
			`SELECT e.previous_sequence FROM ${schema}updates e
			WHERE ${isIn("e.conversation_id")} AND e.sequence > ? ORDER BY e.sequence LIMIT 1`,
			[conversationId],
			asOf,
		),
	]);
	// Pruning keeps the base of a delta longer than the updates that follow it. The found update was current as of `asOf`
	// only if the next one names it as its predecessor.
	const isPruned = row?.sequence !== asOf && next !== undefined && next.previous_sequence !== row?.sequence;
	if (row === undefined || isPruned) return undefined;
	return updateFrom(row, (await readRecords(session, [row]))(row));
}

/** Lists updates by sequence number, oldest first. */
export async function listUpdates(session: Session, query: UpdateQuery): Promise<StoredUpdate[]> {
	const { after, conversationId, owner, origin, limit, maxBytes, withRecords } = query;
	const { all, isIn, dialect } = session;
	const where = given([
		["e.sequence > ?", bindable(after)],
		[isIn("e.conversation_id"), conversationId === undefined ? undefined : [conversationId]],
		["e.origin = ?", origin === UpdateOrigin.UNSPECIFIED ? undefined : origin],
		["e.owner = ?", owner],
	]);
	const page = `
		SELECT e.conversation_id, e.sequence, e.size FROM ${dialect.schema}updates e
		WHERE ${where.text} ORDER BY e.sequence LIMIT ?
	`;
	const isLimited = withRecords && maxBytes !== undefined;
	const settled = await session.settled(conversationId);
	const cut = isLimited ? withinSize(page, "?") : page;
	const [rows, erasures] = await Promise.all([
		all(
			`SELECT ${UPDATE_COLUMNS} ${isLimited ? ", p.found" : ""} ${withRecords ? RECORD_COLUMNS : ""}
			FROM (${cut}) p ${dialect.join} ${dialect.schema}updates u ON ${isOfRow("u", "p")}
			${dialect.join} ${dialect.schema}heads h ON h.conversation_id = p.conversation_id
			ORDER BY u.sequence`,
			...where.parameters,
			limit,
			...(isLimited ? [maxBytes] : []),
		),
		listErasures(session, query),
	]);
	const recordOf = withRecords ? await readRecords(session, rows) : undefined;
	const updates = rows
		.map((row) => updateFrom(row, recordOf?.(row)))
		.filter(({ sequence }) => settled === undefined || sequence <= settled.updates);
	const found = nullable(integer, rows[0]?.found ?? null) ?? 0;
	return withErasures(updates, rows.length === limit || rows.length < found, erasures, limit);
}

/**
 * Returns the query for the first rows of a page that has the column `size`, as long as the sum of their sizes is within a
 * limit, but for at least one. They have the number of rows of the whole page as `found`.
 *
 * @param max SQL for the limit
 */
export function withinSize(page: string, max: string, order = "sequence"): string {
	return `
		SELECT * FROM (
			SELECT page.*, CAST(sum(size) OVER (ORDER BY ${order}) AS bigint) AS total,
				row_number() OVER (ORDER BY ${order}) AS place, count(*) OVER () AS found
			FROM (${page}) page
		) sized WHERE total <= ${max} OR place = 1
	`;
}

/** Returns the record state of a conversation, and which of the event ids are already stored. */
async function readRecordState(
	session: Session,
	{ conversationId, eventIds }: { readonly conversationId: string; readonly eventIds: readonly string[] },
): Promise<RecordState> {
	const { all, isIn, dialect } = session;
	const keys = eventIds.map(keyOf);
	const [[head], [activity], current, known] = await Promise.all([
		all(`SELECT * FROM ${dialect.schema}heads WHERE ${isIn("conversation_id")}`, [conversationId]),
		all(`SELECT event_count, last_at FROM ${dialect.schema}activities WHERE ${isIn("conversation_id")}`, [
			conversationId,
		]),
		getUpdate(session, { conversationId, asOf: undefined, owner: undefined }),
		keys.length === 0
			? []
			: all(
					`SELECT e.event_id FROM ${dialect.schema}events e
					WHERE ${isIn("e.conversation_id")} AND e.event_id IN (${keys.map(() => "?").join()})`,
					[conversationId],
					...keys,
				),
	]);
	const stored = new Set(known.map(({ event_id }) => event_id));
	const state = head && stateFrom(head);
	return {
		revision: revisionOf(state, activity && { eventCount: bigint(activity.event_count) }),
		memberTimes: state?.memberTimes,
		postedAt: state?.postedAt,
		hasUnappliedEvents: state?.hasUnappliedEvents ?? false,
		lastEventAt: activity && bigint(activity.last_at),
		current,
		knownIds: eventIds.filter((id) => stored.has(keyOf(id))),
	};
}

/** Returns the ids of at most `limit` conversations whose record may lack changes that stored events make. */
async function listUnapplied({ all, dialect: { schema } }: Session, limit: number): Promise<readonly string[]> {
	const rows = await all(`SELECT conversation_id FROM ${schema}heads WHERE has_unapplied_events = TRUE LIMIT ?`, limit);
	return rows.map(({ conversation_id }) => text(conversation_id));
}

/** SQL columns of an event `e` that `storedEventsFrom` reads. */
const EVENT_COLUMNS = `
	e.conversation_id, e.owner, e.sequence, e.received_at, e.happened_at, e.kind, e.source, e.sender, e.origin, e.text,
	e.unpacked_size, e.checksum, e.secrets, e.redaction_version
`;

/** Lists events by sequence number. */
export async function listEvents(session: Session, query: EventQuery): Promise<StoredEvent[]> {
	const { newestFirst = false, conversationId, owner, conditions = [], limit, maxBytes } = query;
	const { all, isIn, dialect } = session;
	const { schema } = dialect;
	const tests = [...boundsOf(session, query), ...conditions.flatMap(conditionSql)];
	if (conversationId !== undefined) tests.push(sql(isIn("e.conversation_id"), [conversationId]));
	// No index has all ids in one order: it would slow appends.
	else if (conditions.some(({ kind }) => kind === "id"))
		tests.push(sql(dialect.isOneOf("e.conversation_id", `SELECT conversation_id FROM ${schema}activities`)));
	if (owner !== undefined) tests.push(sql("e.owner = ?", owner));
	const where = allOf(tests);
	const order = `sequence ${newestFirst ? "DESC" : "ASC"}`;
	const page = `
		SELECT e.conversation_id, e.sequence, coalesce(e.unpacked_size, octet_length(e.text)) AS size FROM ${schema}events e
		WHERE ${where.text} ORDER BY e.${order} LIMIT ?
	`;
	const settled = await session.settled(conversationId);
	const cut = maxBytes === undefined ? page : withinSize(page, "?", order);
	const rows = await all(
		`SELECT ${EVENT_COLUMNS} FROM (${cut}) p ${dialect.join} ${schema}events e ON ${isOfRow("e", "p")} ORDER BY e.${order}`,
		...where.parameters,
		limit,
		...(maxBytes === undefined ? [] : [maxBytes]),
	);
	const events = storedEventsFrom(rows);
	return settled === undefined ? events : events.filter((event) => event.sequence <= settled.events);
}

/** Returns those of the events that exist, in any order. */
async function readEvents({ all, dialect }: Session, sequences: readonly bigint[]): Promise<StoredEvent[]> {
	if (sequences.length === 0) return [];
	const rows = await all(
		`SELECT ${EVENT_COLUMNS} FROM ${dialect.schema}events e WHERE e.sequence IN (${sequences.map(() => "?").join()})`,
		...sequences,
	);
	return storedEventsFrom(rows);
}

/**
 * Returns tests of the sequence: it is between two sequences, and between the first and the last block with times in the
 * range of the conditions. There is one test for each side, because SQLite searches an index by one.
 */
function boundsOf({ dialect }: Session, { after, before, conditions = [] }: EventQuery): Sql[] {
	const column = "e.sequence";
	const end = bindable(before ?? EVER.to);
	const range = timeRangeOf(conditions);
	if (range === undefined) return [sql(`${column} > ? AND ${column} < ?`, bindable(after), end)];
	const { schema, least, greatest } = dialect;
	const blocks = `${schema}event_times WHERE block >= ? AND last_at >= ? AND first_at < ?`;
	const selected = [bindable(after >> BigInt(BLOCK_BITS)), bindable(range.from), bindable(range.to)];
	// Without such a block no event passes.
	return [
		sql(
			`${column} > ${greatest}(?, (SELECT coalesce((min(block) << ${BLOCK_BITS}) - 1, ${EVER.to}) FROM ${blocks}))`,
			bindable(after),
			...selected,
		),
		sql(
			`${column} < ${least}(?, (SELECT coalesce((max(block) + 1) << ${BLOCK_BITS}, 0) FROM ${blocks}))`,
			end,
			...selected,
		),
	];
}

function conditionSql(condition: EventCondition): Sql[] {
	switch (condition.kind) {
		case "one_of":
		case "none_of": {
			const { kind, field, values } = condition;
			if (values.length === 0) return [sql(kind === "one_of" ? "FALSE" : "TRUE")];
			const list = `(${values.map(() => "?").join()})`;
			return [sql(`e.${field} ${kind === "one_of" ? "" : "NOT"} IN ${list}`, ...values)];
		}
		case "id":
			return [sql("e.event_id = ?", keyOf(condition.value))];
		case "happened": {
			const { from, to } = condition;
			return [
				...(from === undefined ? [] : [sql("e.happened_at >= ?", bindable(from))]),
				...(to === undefined ? [] : [sql("e.happened_at < ?", bindable(to))]),
			];
		}
	}
}

export const logReads = {
	getUpdate,
	listEvents,
	listUnapplied,
	listUpdates,
	readEvents,
	readRange,
	readRecordState,
};
