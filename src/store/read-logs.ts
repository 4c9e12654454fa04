import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { BLOCK_BITS, type EventCondition, timeRangeOf } from "./condition.ts";
import { allOf } from "./conversation-lists.ts";
import type { EventQuery, RecordState, StoredEvent, StoredUpdate, UpdateQuery } from "./entries.ts";
import { listErasures, withErasures } from "./erasure.ts";
import {
	ACTIVITY_COLUMNS,
	currentRecordFrom,
	joinedActivityFrom,
	recordStateFrom,
	stateWithoutRecord,
	storedEventsFrom,
	updateFrom,
} from "./rows.ts";
import type { LogTable, RangeQuery, SequenceRange } from "./sequence-log.ts";
import type { Session, Sql, Value } from "./session.ts";
import { tableOf } from "./tables.ts";
import { bigint, bindable, integer, nullable, text } from "./values.ts";

/** Reads of the logs of updates and events, and of the current record of a conversation. */

/** Returns which sequences a log has, and how far it was pruned: see `SequenceLog.range`. Later reads find all entries. */
export async function readRange(
	session: Session,
	{ log, query = {} }: { readonly log: LogTable; readonly query?: RangeQuery | undefined },
): Promise<SequenceRange> {
	const { all, isIn, storeText, dialect } = session;
	const { schema, removals, entries } = dialect;
	const { conversationId, owner, afterRemoval } = query;
	const tests: [test: string, value: Value][] = [["log = ?", log]];
	if (conversationId !== undefined) tests.push([isIn("conversation_id"), [conversationId]]);
	if (owner !== undefined) tests.push(["owner = ?", storeText(owner)]);
	if (afterRemoval !== undefined) tests.push(["removal > ?", bindable(afterRemoval)]);
	const ofSome = tests.length > 1;
	const where = tests.map(([test]) => test).join(" AND ");
	const through = ofSome ? `(SELECT max(through) FROM ${schema}pruned WHERE ${where})` : "r.pruned_through";
	await session.settled(conversationId);
	const [row] = await all(
		`SELECT ${entries[log].used} AS newest, r.last_removal, ${through} AS through
		FROM ${schema}${removals} r WHERE r.log = ?`,
		...(ofSome ? tests.map(([, value]) => value) : []),
		log,
	);
	return {
		newest: bigint(row?.newest),
		prunedThrough: nullable(bigint, row?.through) ?? 0n,
		lastRemoval: bigint(row?.last_removal),
	};
}

/** Sets the range of a log whose entries were imported. */
export async function writeRange(
	{ all, dialect: { schema, removals, entries } }: Session,
	log: LogTable,
	{ newest, prunedThrough, lastRemoval }: SequenceRange,
): Promise<void> {
	await all(entries[log].skip, newest);
	await all(
		`UPDATE ${schema}${removals} SET pruned_through = ?, last_removal = ? WHERE log = ?`,
		prunedThrough,
		lastRemoval,
		log,
	);
}

/** SQL columns of an update `u` and of the head `h` of its conversation that `updateFrom` reads. */
function updateColumnsIn({ dialect: { engine } }: Session): string {
	const errorSequence = "error_sequence" in tableOf(engine, "updates").columns ? ", u.error_sequence" : "";
	return `
		h.conversation_id, h.owner, h.sender AS first_sender, u.sequence, u.change, u.current, u.origin,
		u.previous_sequence, u.received_at, u.summary, u.activity, u.sender ${errorSequence}
	`;
}

/** Which update is read: see `Store.get`. */
export interface UpdateOf {
	readonly conversationId: string;
	readonly asOf: bigint | undefined;
	readonly owner: string | undefined;
}

/** Returns the current update of a conversation with the newest leaf, or the update that was current as of `asOf`. */
export async function getUpdate(session: Session, query: UpdateOf): Promise<StoredUpdate | undefined> {
	const { conversationId, asOf, owner } = query;
	if (asOf !== undefined) return await getUpdateAsOf(session, { ...query, asOf: bindable(asOf) });
	const { all, isIn, readText, storeText, dialect } = session;
	using records = session.records();
	// The record of another owner's conversation is not read at all: the time of the answer must not tell that it exists.
	const [row] = await all(
		`SELECT ${updateColumnsIn(session)}, h.status, h.posted_at, ${ACTIVITY_COLUMNS} ${records.columns}
		FROM ${dialect.schema}heads h JOIN ${dialect.schema}updates u ON ${dialect.isCurrent("h")}
		LEFT JOIN ${dialect.schema}activities a ON a.conversation_id = h.conversation_id ${records.join}
		WHERE ${isIn("h.conversation_id")} ${owner === undefined ? "" : "AND h.owner = ?"}`,
		[conversationId],
		...(owner === undefined ? [] : [storeText(owner)]),
	);
	if (row === undefined) return undefined;
	const record = currentRecordFrom(row, joinedActivityFrom(row, readText), records.read(row));
	return updateFrom(row, readText, record);
}

async function getUpdateAsOf(
	session: Session,
	{ conversationId, asOf, owner }: UpdateOf & { readonly asOf: bigint },
): Promise<StoredUpdate | undefined> {
	const { all, isIn, readText, storeText, dialect } = session;
	const { ofOne, conversationId: idColumn, owner: ownerColumn } = dialect.entries.updates;
	using records = session.records();
	const [[row], [next]] = await Promise.all([
		all(
			`SELECT ${updateColumnsIn(session)} ${records.columns} FROM (
				SELECT ${idColumn} AS conversation_id, e.sequence FROM ${ofOne}
				WHERE ${isIn(idColumn)} AND e.sequence <= ? AND e.current = TRUE
					${owner === undefined ? "" : `AND ${ownerColumn} = ?`}
				ORDER BY e.sequence DESC LIMIT 1
			) p ${dialect.join} ${dialect.schema}updates u ON ${dialect.isCurrent("p")}
			${dialect.join} ${dialect.schema}heads h ON h.conversation_id = p.conversation_id ${records.join}`,
			[conversationId],
			asOf,
			...(owner === undefined ? [] : [storeText(owner)]),
		),
		all(
			`SELECT e.previous_sequence FROM ${ofOne} WHERE ${isIn(idColumn)} AND e.sequence > ? ORDER BY e.sequence LIMIT 1`,
			[conversationId],
			asOf,
		),
	]);
	// Pruning keeps the base of a delta longer than the updates that follow it. The found update was current as of `asOf`
	// only if the next one names it as its predecessor.
	const isPruned = row?.sequence !== asOf && next !== undefined && next.previous_sequence !== row?.sequence;
	return row === undefined || isPruned ? undefined : updateFrom(row, readText, records.read(row));
}

/** Lists updates by sequence number, oldest first. */
export async function listUpdates(session: Session, query: UpdateQuery): Promise<StoredUpdate[]> {
	const { after, conversationId, owner, origin, limit, maxBytes, withRecords } = query;
	const { all, isIn, readText, storeText, dialect } = session;
	const log = dialect.entries.updates;
	const ofOwner = conversationId === undefined && owner !== undefined;
	const [from, ownerColumn, sequence] = ofOwner
		? [log.ofOwner.from, log.ofOwner.owner, log.ofOwner.sequence]
		: [conversationId === undefined ? log.from : log.ofOne, log.owner, "e.sequence"];
	const tests: [test: string, value: Value][] = [[`${sequence} > ?`, bindable(after)]];
	if (conversationId !== undefined) tests.push([isIn(log.conversationId), [conversationId]]);
	if (origin !== undefined && origin !== UpdateOrigin.UNSPECIFIED) tests.push(["e.origin = ?", origin]);
	if (owner !== undefined) tests.push([`${ownerColumn} = ?`, storeText(owner)]);
	const page = `
		SELECT ${log.conversationId} AS conversation_id, ${sequence} AS sequence, ${log.size} AS size FROM ${from}
		WHERE ${tests.map(([test]) => test).join(" AND ")} ORDER BY ${sequence} LIMIT ?
	`;
	const isLimited = withRecords && maxBytes !== undefined;
	const settled = await session.settled(conversationId);
	const cut = isLimited ? `${withSizes(page)} WHERE total <= ? OR number = 1` : page;
	using records = session.records();
	const [rows, erasures] = await Promise.all([
		all(
			`SELECT ${updateColumnsIn(session)} ${isLimited ? ", p.found" : ""} ${withRecords ? records.columns : ""}
			FROM (${cut}) p ${dialect.join} ${dialect.schema}updates u ON ${dialect.isCurrent("p")}
			${dialect.join} ${dialect.schema}heads h ON h.conversation_id = p.conversation_id ${withRecords ? records.join : ""}
			ORDER BY u.sequence`,
			...tests.map(([, value]) => value),
			limit,
			...(isLimited ? [maxBytes] : []),
		),
		listErasures(session, query),
	]);
	const updates = rows
		.map((row) => updateFrom(row, readText, withRecords ? records.read(row) : undefined))
		.filter(({ sequence }) => settled === undefined || sequence <= settled.updates);
	const found = nullable(integer, rows[0]?.found ?? null) ?? 0;
	return withErasures(updates, rows.length === limit || rows.length < found, erasures, limit);
}

/**
 * Returns the query for the rows of a page that has the column `size`, with the `number` of each, the `total` of sizes up to
 * it, and the number of rows `found`.
 */
export function withSizes(page: string, order = "sequence"): string {
	return `
		SELECT * FROM (
			SELECT page.*, CAST(sum(size) OVER (ORDER BY ${order}) AS bigint) AS total,
				row_number() OVER (ORDER BY ${order}) AS number, count(*) OVER () AS found
			FROM (${page}) page
		) sized
	`;
}

/** Returns the record state of a conversation, and which of the event ids are already stored. */
export async function getRecordState(
	session: Session,
	{ conversationId, eventIds }: { readonly conversationId: string; readonly eventIds: readonly string[] },
): Promise<RecordState> {
	const { all, isIn, readText, storeKey, dialect } = session;
	const keys = eventIds.map(storeKey);
	const ofConversation = isIn(dialect.entries.events.conversationId);
	const [[head], [activity], current, known] = await Promise.all([
		all(
			`SELECT revision, member_times, posted_at, has_unapplied_events FROM ${dialect.schema}heads
			WHERE ${isIn("conversation_id")}`,
			[conversationId],
		),
		all(`SELECT event_count, last_at FROM ${dialect.schema}activities WHERE ${isIn("conversation_id")}`, [
			conversationId,
		]),
		getUpdate(session, { conversationId, asOf: undefined, owner: undefined }),
		keys.length === 0
			? []
			: all(
					`SELECT e.event_id FROM ${dialect.eventsById.from}
					WHERE ${ofConversation} AND e.event_id IN (${keys.map(() => "?").join()})`,
					[conversationId],
					...keys,
				),
	]);
	const stored = new Set(known.map(({ event_id }) => event_id));
	return {
		...(head === undefined
			? stateWithoutRecord(activity && { eventCount: bigint(activity.event_count) })
			: recordStateFrom(head, readText)),
		lastEventAt: activity && bigint(activity.last_at),
		current,
		knownIds: eventIds.filter((id) => stored.has(storeKey(id))),
	};
}

/** Returns the ids of at most `limit` conversations whose record may lack changes that stored events make. */
export async function listUnapplied({ all, dialect: { schema } }: Session, limit: number): Promise<readonly string[]> {
	const rows = await all(`SELECT conversation_id FROM ${schema}heads WHERE has_unapplied_events = TRUE LIMIT ?`, limit);
	return rows.map(({ conversation_id }) => text(conversation_id));
}

/** SQL columns of an event `e` that `storedEventsFrom` reads, without its contents and its conversation. */
const EVENT_COLUMNS = "e.sequence, e.received_at, e.happened_at, e.kind, e.source, e.sender, e.origin";

/** Lists events by sequence number. */
export async function listEvents(session: Session, query: EventQuery): Promise<StoredEvent[]> {
	const { newestFirst = false, conversationId, owner, conditions = [], limit, maxBytes } = query;
	const { all, isIn, readText, storeText, contents, dialect } = session;
	const { eventsById, entries } = dialect;
	const log = entries.events;
	const byId = conditions.some(({ kind }) => kind === "id");
	const ofOwner = owner !== undefined && conversationId === undefined && !byId;
	const [ownerColumn, sequence] = ofOwner ? [log.ofOwner.owner, log.ofOwner.sequence] : [log.owner, "e.sequence"];
	const ofAll = ofOwner ? log.ofOwner.from : log.from;
	const from = byId ? eventsById.from : conversationId === undefined ? ofAll : log.ofOne;
	const tests = [
		...boundsOf(session, sequence, query),
		...conditions.flatMap((condition) => conditionSql(session, condition)),
	];
	if (conversationId !== undefined) tests.push({ text: isIn(log.conversationId), parameters: [[conversationId]] });
	else if (byId) tests.push({ text: eventsById.test, parameters: [] });
	if (owner !== undefined) tests.push({ text: `${ownerColumn} = ?`, parameters: [storeText(owner)] });
	const where = allOf(tests);
	const order = `sequence ${newestFirst ? "DESC" : "ASC"}`;
	const page = `
		SELECT ${log.conversationId} AS conversation_id, ${sequence} AS sequence, ${log.size} AS size FROM ${from}
		WHERE ${where.text} ORDER BY ${sequence} ${newestFirst ? "DESC" : "ASC"} LIMIT ?
	`;
	const settled = await session.settled(conversationId);
	const cut = maxBytes === undefined ? page : `${withSizes(page, order)} WHERE total <= ? OR number = 1`;
	const rows = await all(
		`SELECT p.conversation_id, a.owner, ${EVENT_COLUMNS} ${contents.columns}
		FROM (${cut}) p ${dialect.join} ${dialect.schema}events e ON ${dialect.isEvent("p")}
		${dialect.join} ${dialect.schema}activities a ON a.conversation_id = p.conversation_id
		ORDER BY e.${order}`,
		...where.parameters,
		limit,
		...(maxBytes === undefined ? [] : [maxBytes]),
	);
	const events = storedEventsFrom(rows, readText, contents.read);
	return settled === undefined ? events : events.filter((event) => event.sequence <= settled.events);
}

/** Returns those of the events that exist, in any order. */
export async function readEvents(
	{ all, readText, contents, dialect }: Session,
	sequences: readonly bigint[],
): Promise<StoredEvent[]> {
	if (sequences.length === 0) return [];
	const { from, conversationId } = dialect.entries.events;
	const rows = await all(
		`SELECT ${conversationId} AS conversation_id, (
			SELECT o.owner FROM ${dialect.schema}activities o WHERE o.conversation_id = ${conversationId}
		) AS owner, ${EVENT_COLUMNS} ${contents.columns}
		FROM ${from} WHERE e.sequence IN (${sequences.map(() => "?").join()})`,
		...sequences,
	);
	return storedEventsFrom(rows, readText, contents.read);
}

/**
 * Returns tests of the sequence: it is between two sequences, and between the first and the last block with times in the
 * range of the conditions. There is one test for each side, because SQLite searches an index by one.
 */
function boundsOf({ dialect }: Session, column: string, { after, before, conditions = [] }: EventQuery): Sql[] {
	const end = bindable(before ?? LAST);
	const range = timeRangeOf(conditions);
	if (range === undefined) return [{ text: `${column} > ? AND ${column} < ?`, parameters: [bindable(after), end] }];
	const { schema, least, greatest } = dialect;
	const blocks = `${schema}event_times WHERE block >= ? AND last_at >= ? AND first_at < ?`;
	const selected = [bindable(after >> BigInt(BLOCK_BITS)), bindable(range.from), bindable(range.to)];
	// Without such a block no event passes.
	return [
		{
			text: `${column} > ${greatest}(?, (SELECT coalesce((min(block) << ${BLOCK_BITS}) - 1, ${LAST}) FROM ${blocks}))`,
			parameters: [bindable(after), ...selected],
		},
		{
			text: `${column} < ${least}(?, (SELECT coalesce((max(block) + 1) << ${BLOCK_BITS}, 0) FROM ${blocks}))`,
			parameters: [end, ...selected],
		},
	];
}

const LAST = 2n ** 63n - 1n;

function conditionSql({ storeText, storeKey }: Session, condition: EventCondition): Sql[] {
	switch (condition.kind) {
		case "one_of":
		case "none_of": {
			const { kind, field, values } = condition;
			if (values.length === 0) return [{ text: kind === "one_of" ? "FALSE" : "TRUE", parameters: [] }];
			const list = `(${values.map(() => "?").join()})`;
			return [{ text: `e.${field} ${kind === "one_of" ? "" : "NOT"} IN ${list}`, parameters: values.map(storeText) }];
		}
		case "id":
			return [{ text: "e.event_id = ?", parameters: [storeKey(condition.value)] }];
		case "happened": {
			const { from, to } = condition;
			return [
				...(from === undefined ? [] : [{ text: "e.happened_at >= ?", parameters: [bindable(from)] }]),
				...(to === undefined ? [] : [{ text: "e.happened_at < ?", parameters: [bindable(to)] }]),
			];
		}
	}
}
