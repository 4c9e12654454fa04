import type { ServiceError } from "../errors.ts";
import { BLOCK_BITS } from "./condition.ts";
import type { GroupRequest } from "./duplicates.ts";
import { idDigest } from "./erasure.ts";
import { findExplained, gapColumns, gapsOf, gapsSql, NO_GAPS } from "./gaps.ts";
import { type GroupQuery, groupQuery, type KnownConversation, type PlanReads, type WrittenGroup } from "./group.ts";
import { type AppendOutcome, planGroup } from "./group-plan.ts";
import type { Ownership } from "./owners.ts";
import { readOrUnreadable } from "./record-column.ts";
import {
	activityColumns,
	activityFrom,
	eventColumns,
	headColumns,
	isOfRow,
	ownershipColumns,
	ownershipFrom,
	RECORD_COLUMNS,
	recordFrom,
	stateFrom,
	updateColumns,
} from "./rows.ts";
import { addToSender, postsColumns } from "./senders.ts";
import type { NewestSequences } from "./sequence-log.ts";
import type { Change, Columns, Session } from "./session.ts";
import { type TableName, tableOf } from "./tables.ts";
import { readRow } from "./typed-rows.ts";
import { bigint, boolean, integer, keyOf, nullable, type RecordColumn, type Row, text } from "./values.ts";
import { markChanged } from "./views/follow.ts";

/** Appends groups: reads what is known of their conversations, plans them, and makes the rows that they write. */

/** A planned group. */
export interface PlannedGroup {
	readonly written: WrittenGroup;
	/** The outcomes of the requests, in their order, once the rows are on disk. */
	readonly outcomes: readonly AppendOutcome[];
	/** The newest sequences with those of the group. */
	readonly newest: NewestSequences;
	/** Sends all that is written, without waiting for an answer in between. Undefined if there is nothing to write. */
	readonly write: (() => Promise<unknown>) | undefined;
}

/**
 * Locks the conversations of a group and the sequences, and plans the group. The caller has begun a transaction.
 *
 * @param refusalOf returns the error for a request that may no longer be written. Its answer holds from the locks on
 * @param pack packs a record
 */
export async function planAppends<Request extends GroupRequest>(
	session: Session,
	requests: readonly Request[],
	refusalOf: (request: Request) => ServiceError | undefined,
	pack: (record: Uint8Array) => RecordColumn | Promise<RecordColumn>,
): Promise<PlannedGroup> {
	const { known, rows, newest } = await readKnown(session, groupQuery(requests));
	const { written, outcomes } = await planGroup(requests, known, newest, refusalOf, readsOf(session));
	const { updates, events, heads, activities, gaps, senders } = written;
	const isEmpty = updates.length + events.length + heads.size + activities.size + gaps.size + senders.size === 0;
	const entries = await entryRows(written, pack);
	return {
		written,
		outcomes,
		newest: {
			updates: newest.updates + BigInt(updates.length),
			events: newest.events + BigInt(events.length),
		},
		write: isEmpty ? undefined : () => writeGroup(session, written, entries, rows),
	};
}

/** The rows of conversations before a group, by the ids of these. */
interface FoundRows {
	readonly heads: ReadonlyMap<string, Row>;
	readonly activities: ReadonlyMap<string, Row>;
}

/** SQL for all columns of a head `h`, and of an activity `a`. */
const [ALL_OF_HEAD, ALL_OF_ACTIVITY] = [listColumns("heads", "h"), listColumns("activities", "a")];

function listColumns(name: TableName, alias: string): string {
	return Object.keys(tableOf(name).columns)
		.map((column) => `${alias}.${column}`)
		.join();
}

async function readKnown(session: Session, query: GroupQuery) {
	const { conversationIds, versions, events, named } = query;
	const { all, isIn } = session;
	const { schema, rowsOf, join } = session.dialect;
	// Citus asks only servers that have rows of the conversations if each joined table has such a test, which would mislead the
	// planner of one server.
	const isSpread = await session.isSpread();
	const ids = isSpread ? [conversationIds] : [];
	const isOf = (alias: string) => (isSpread ? `AND ${isIn(`${alias}.conversation_id`)}` : "");
	const ofEvents = (listed: GroupQuery["events"]) => ({
		rows: listed.map(({ conversationId, eventId }) => [conversationId, keyOf(eventId)]),
	});
	const lookedUp = [...events, ...named];
	const missing = [...new Set(events.map(({ eventId }) => eventId))];
	const read = () =>
		Promise.all([
			all(
				`SELECT ${ALL_OF_HEAD}, n.change AS newest_change, n.current AS newest_current
				FROM ${schema}heads h LEFT JOIN ${schema}updates n
					ON n.conversation_id = h.conversation_id AND n.sequence = h.newest_sequence ${isOf("n")}
				WHERE ${isIn("h.conversation_id")}`,
				...ids,
				conversationIds,
			),
			all(`SELECT ${ALL_OF_ACTIVITY} FROM ${schema}activities a WHERE ${isIn("a.conversation_id")}`, conversationIds),
			all(gapsSql(schema, isIn("g.conversation_id")), conversationIds),
			versions.size === 0
				? []
				: all(
						`SELECT u.conversation_id, u.sequence, coalesce(b.size, u.size) AS base_size ${RECORD_COLUMNS}
						FROM ${schema}heads h ${join} ${schema}updates u ON ${isOfRow("u", "h")} ${isOf("u")}
						LEFT JOIN ${schema}updates b ON b.conversation_id = u.conversation_id
							AND b.sequence = u.base_sequence ${isOf("b")}
						WHERE ${isIn("h.conversation_id")}`,
						...ids,
						...ids,
						[...versions],
					),
			lookedUp.length === 0
				? []
				: all(
						`SELECT e.conversation_id, e.event_id FROM (${rowsOf({ conversation_id: "id", event_id: "text" })}) k
						${join} ${schema}events e ON e.conversation_id = k.conversation_id AND e.event_id = k.event_id ${isOf("e")}`,
						ofEvents(lookedUp),
						...ids,
					),
			missing.length === 0
				? []
				: all(
						`SELECT g.conversation_id, g.missing, g.after_event_id FROM (${rowsOf({ event_id: "text" })}) k
						${join} ${schema}gaps g ON g.missing = k.event_id
						WHERE g.kind IN ('missing_parent', 'missing_leaf')`,
						{ rows: missing.map((id) => [id]) },
					),
		]);
	const [hasChanged, first, newest] = await Promise.all([
		session.lock(conversationIds),
		read(),
		session.lockSequences(),
	]);
	const found = hasChanged ? await read() : first;
	const [heads, activities, gaps, forms, stored, ofGaps] = found;
	const forks = await forksOf(session, ofGaps);
	const rows: FoundRows = { heads: rowsById(heads), activities: rowsById(activities) };
	const formOf = rowsById(forms);
	const remains = await remainsOf(
		session,
		conversationIds.filter((id) => !rows.heads.has(id) && !rows.activities.has(id)),
	);
	const known = new Map(
		conversationIds.map((id): [string, KnownConversation] => {
			const [head, activity] = [rows.heads.get(id), rows.activities.get(id)];
			const owned = head ?? activity;
			return [
				id,
				{
					state: head && stateFrom(head),
					activity: activity && activityFrom(activity),
					newestPosted: head && newestPostedFrom(head),
					...formFrom(formOf.get(id)),
					eventIds: new Set(),
					...remains(id),
					ownership: owned && ownershipFrom(owned),
					gaps: gaps.length === 0 ? NO_GAPS : gapsOf(gaps, id),
					source: nullable(text, head?.source_id ?? null),
					parent: nullable(text, head?.parent_id ?? null),
					forks,
				},
			];
		}),
	);
	const storedKeys = new Set(stored.map((row) => `${text(row.conversation_id)} ${text(row.event_id)}`));
	for (const { conversationId, eventId } of lookedUp)
		if (storedKeys.has(`${conversationId} ${keyOf(eventId)}`)) known.get(conversationId)?.eventIds.add(eventId);
	return { known, rows, newest };
}

function rowsById(rows: readonly Row[]): ReadonlyMap<string, Row> {
	return new Map(rows.map((row) => [text(row.conversation_id), row]));
}

/** Reads what is left of conversations of which nothing else is stored: they are new, or were removed or erased. */
async function remainsOf(
	{ all, isIn, dialect: { schema, rowsOf } }: Session,
	ids: readonly string[],
): Promise<(id: string) => Pick<KnownConversation, "removed" | "erasure">> {
	if (ids.length === 0) return () => ({ removed: undefined, erasure: undefined });
	const [usages, erasures] = await Promise.all([
		all(
			`SELECT conversation_id, sender, owner FROM ${schema}usage_conversations WHERE ${isIn("conversation_id")}`,
			ids,
		),
		all(
			`SELECT id_digest, sequence, owner, created_at, erased_at FROM ${schema}erasures
			WHERE id_digest IN (SELECT k.digest FROM (${rowsOf({ digest: "text" })}) k)`,
			{ rows: ids.map((id) => [idDigest(id)]) },
		),
	]);
	const usageOf = rowsById(usages);
	const erasureOf = new Map(erasures.map((row) => [text(row.id_digest), readRow("erasures", row)]));
	return (id) => {
		const usage = usageOf.get(id);
		const removed = usage && { sender: text(usage.sender), owner: text(usage.owner) };
		return { removed, erasure: erasureOf.get(idDigest(id)) };
	};
}

function newestPostedFrom(head: Row): KnownConversation["newestPosted"] {
	if (head.newest_change === null) return undefined;
	return { change: integer(head.newest_change), current: boolean(head.newest_current) };
}

/** Reads the form in which a current record is stored; undefined for one whose form is not needed. */
function formFrom(row: Row | undefined): Pick<KnownConversation, "base" | "delta"> {
	if (row === undefined) return { base: undefined, delta: undefined };
	const base = nullable(bigint, row.base_sequence);
	return {
		base: { sequence: base ?? bigint(row.sequence), size: integer(row.base_size) },
		delta: base === undefined ? undefined : recordFrom(row),
	};
}

/**
 * Returns those of the gaps for events of the group whose conversations are forks, or have no record and may be forks: ids of
 * conversations by the id of the event. Events of different conversations can have the same id.
 *
 * @param gaps usually none
 */
async function forksOf(
	{ all, isIn, dialect: { schema } }: Session,
	gaps: readonly Row[],
): Promise<ReadonlyMap<string, readonly string[]>> {
	const forks = new Map<string, string[]>();
	if (gaps.length === 0) return forks;
	const ids = gaps.map((row) => text(row.conversation_id));
	const [heads, withoutRecord] = await Promise.all([
		all(`SELECT conversation_id FROM ${schema}heads WHERE ${isIn("conversation_id")} AND source_id IS NOT NULL`, ids),
		all(`SELECT conversation_id FROM ${schema}gaps WHERE ${isIn("conversation_id")} AND kind = 'no_record'`, ids),
	]);
	const idsIn = (rows: readonly Row[]) => new Set(rows.map((row) => text(row.conversation_id)));
	const [known, possible] = [idsIn(heads), idsIn(withoutRecord)];
	for (const row of gaps) {
		const [id, missing] = [text(row.conversation_id), text(row.missing)];
		if (known.has(id) || (possible.has(id) && row.after_event_id === null))
			forks.set(missing, [...(forks.get(missing) ?? []), id]);
	}
	return forks;
}

/** Returns the further reads of a plan. */
function readsOf(session: Session): PlanReads {
	return {
		async record(sequence) {
			const [row] = await session.all(
				`SELECT u.sequence ${RECORD_COLUMNS} FROM ${session.dialect.schema}updates u WHERE u.sequence = ?`,
				sequence,
			);
			return row && readOrUnreadable(() => recordFrom(row));
		},
		explained: (missing) => findExplained(session, missing),
	};
}

/** The rows of the entries of a group. */
type EntryRows = Readonly<Record<"updates" | "events", readonly Columns[]>>;

async function entryRows(
	{ updates, events, ownerships }: WrittenGroup,
	pack: (record: Uint8Array) => RecordColumn | Promise<RecordColumn>,
): Promise<EntryRows> {
	const ownerOf = (id: string) => ownershipOf(ownerships, id).owner;
	return {
		updates: await Promise.all(
			updates.map(async (update) =>
				updateColumns(update, await pack(update.record.bytes), ownerOf(update.conversationId)),
			),
		),
		events: events.map((event) => eventColumns(event, ownerOf(event.conversationId))),
	};
}

function ownershipOf(ownerships: ReadonlyMap<string, Ownership>, id: string): Ownership {
	const ownership = ownerships.get(id);
	if (ownership === undefined) throw new Error("the plan of a group is not complete");
	return ownership;
}

function writeGroup(
	session: Session,
	written: WrittenGroup,
	entries: EntryRows,
	{ heads, activities }: FoundRows,
): Promise<unknown> {
	const { dialect, all, insert, remove, write } = session;
	const ownershipIn = (rows: ReadonlyMap<string, Row>, id: string): Columns => {
		const row = rows.get(id);
		// A row that is written again keeps its own.
		return ownershipColumns(row === undefined ? ownershipOf(written.ownerships, id) : ownershipFrom(row));
	};
	const changesOf = <Of>(
		rows: ReadonlyMap<string, Row>,
		of: ReadonlyMap<string, Of>,
		make: (id: string, one: Of) => Columns,
	) =>
		[...of].map(
			([id, one]): Change => ({ before: rows.get(id), after: { ...make(id, one), ...ownershipIn(rows, id) } }),
		);
	const withEntries = new Set([...written.updates, ...written.events].map(({ conversationId }) => conversationId));
	const changed = new Set([...written.gaps.keys(), ...written.senders.keys()].filter((id) => !withEntries.has(id)));
	const gapRows = (which: "closed" | "opened") =>
		[...written.gaps].flatMap(([id, change]) => change[which].map((gap) => gapColumns({ ...gap, conversationId: id })));
	return Promise.all([
		insert("senders", written.posts.all().map(postsColumns), addToSender(dialect)),
		remove("gaps", gapRows("closed")),
		insert("gaps", gapRows("opened"), "NOTHING"),
		insert("updates", entries.updates),
		insert("events", entries.events),
		insert("event_times", timesOf(entries.events), widenTimes(dialect)),
		write("heads", changesOf(heads, written.heads, headColumns)),
		write("activities", changesOf(activities, written.activities, activityColumns)),
		insert("children", childrenOf(written.children), "NOTHING"),
		...[...written.senders].flatMap(([id, sender]) =>
			["heads", "activities"].map((table) =>
				all(`UPDATE ${dialect.schema}${table} SET sender = ? WHERE conversation_id = ?`, sender, id),
			),
		),
		...(changed.size === 0 ? [] : [markChanged(session, [...changed])]),
	]);
}

function childrenOf(children: WrittenGroup["children"]): Columns[] {
	return [...children].flatMap(([id, of]) => [...of].map((child) => ({ conversation_id: id, child: keyOf(child) })));
}

/** Returns the times between which events happened, by their blocks. */
export function timesOf(events: readonly Columns[]): Columns[] {
	const blocks = Map.groupBy(events, ({ sequence }) => bigint(sequence) >> BigInt(BLOCK_BITS));
	return [...blocks].map(([block, of]) => {
		const times = of.map(({ happened_at }) => bigint(happened_at)).sort((a, b) => (a < b ? -1 : 1));
		return { block, first_at: times.at(0), last_at: times.at(-1) };
	});
}

/** Returns what an insert of such times does for a block that has some. */
export function widenTimes({ least, greatest }: Session["dialect"]): string {
	return `UPDATE SET first_at = ${least}(t.first_at, excluded.first_at), last_at = ${greatest}(t.last_at, excluded.last_at)
		WHERE excluded.first_at < t.first_at OR excluded.last_at > t.last_at`;
}
