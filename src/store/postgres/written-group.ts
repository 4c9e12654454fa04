import { gapColumns, type WrittenGaps } from "../gaps.ts";
import type { WrittenGroup } from "../group.ts";
import type { Ownership } from "../owners.ts";
import { columnOfEvent, packRecordAsync, packSecrets } from "../record-column.ts";
import { activityColumns, eventColumns, headColumns, ownershipColumns, updateColumns } from "../rows.ts";
import { addToSender, postsColumns, type SenderPosts } from "../senders.ts";
import type { NewestSequences } from "../sequence-log.ts";
import type { Columns, Value } from "../session.ts";
import { type Table, tableOf } from "../tables.ts";
import { bigint } from "../values.ts";
import { CHANNEL } from "./connections.ts";
import { notifyQueries } from "./log.ts";
import { encodeText } from "./rows.ts";
import {
	Bytes,
	EVENTS,
	eventTimesQueries,
	insertEvents,
	insertInto,
	insertValues,
	json,
	onConflict,
	orReplace,
	type RowSource,
	removeRows,
	rowsFor,
	sizeOfEvent,
	storedRow,
} from "./sql.ts";
import type { Query, Transaction } from "./transaction.ts";

/**
 * Numbers above this one are provisional: the final number is the newest one before the group plus the difference to this
 * one. Real sequences and revisions are not above it. So provisional sequences compare as greater than all real ones, as
 * the final sequences will.
 */
export const PROVISIONAL = 2n ** 62n;

const UPDATES = tableOf("postgres", "updates");
const HEADS = tableOf("postgres", "heads");
const ACTIVITIES = tableOf("postgres", "activities");
const CHILDREN = tableOf("postgres", "children");
const SENDERS = tableOf("postgres", "senders");
const ADD_TO_SENDER = addToSender({ least: "least", greatest: "greatest" });

/** Columns whose numbers may be provisional, with the newest sequence before the group to which they are added. */
const PROVISIONAL_COLUMNS: Readonly<Record<string, "first_update" | "first_event">> = {
	"updates.sequence": "first_update",
	"updates.previous_sequence": "first_update",
	"updates.base_sequence": "first_update",
	"updates.error_sequence": "first_event",
	"activities.error_sequence": "first_event",
	"events.sequence": "first_event",
	"heads.sequence": "first_update",
	"heads.newest_sequence": "first_update",
	"heads.revision": "first_update",
};

/** Returns the SQL for the final value of a column whose number may be provisional. */
function provisional(column: string, before: "first_update" | "first_event"): string {
	return `CASE WHEN r.${column} > ${PROVISIONAL} THEN p.${before} + (r.${column} - ${PROVISIONAL}) ELSE r.${column} END`;
}

/** Returns the source of the rows of a group. Their final numbers are computed from the row `p` of {@link WRITE_GROUP}. */
function groupRows(table: string, json: string): RowSource {
	const valueFor = (column: string) => {
		const before = PROVISIONAL_COLUMNS[`${table}.${column}`];
		return before && provisional(column, before);
	};
	return { json, bytes: "$3", from: "p,", valueFor };
}

/**
 * The statement that takes the sequences of a group and writes all rows that contain them. It locks the row of `positions`
 * until the transaction ends, so it is the last statement.
 */
const WRITE_GROUP = `
	WITH p AS (
		UPDATE conversation_updates.positions
		SET newest_update = newest_update + $1::bigint, newest_event = newest_event + $2::bigint
		RETURNING newest_update - $1::bigint AS first_update, newest_event - $2::bigint AS first_event,
			newest_update, newest_event
	), new_updates AS (
		${insertInto(UPDATES, groupRows("updates", "$4"))}
	), ${insertEvents(groupRows("events", "$5"))}, new_heads AS (
		${insertInto(HEADS, groupRows("heads", "$6"))} ${orReplace(HEADS, ["sender", "owner"])}
	), new_errors AS (
		UPDATE conversation_updates.activities r SET error_sequence = ${provisional("error_sequence", "first_event")}
		FROM p WHERE r.conversation_id = ANY ($8::uuid[])
	)
	SELECT p.first_update, p.first_event,
		CASE WHEN $7::boolean THEN pg_notify('${CHANNEL}', p.newest_update || ' ' || p.newest_event) END
	FROM p
`;

/**
 * Returns the query that adds posts to the totals of their senders, if there are any. The rows are locked in the order of the
 * senders, which is the same in all groups.
 */
function postsQueries(posts: readonly SenderPosts[]): Query[] {
	if (posts.length === 0) return [];
	const text = `${insertInto(SENDERS)} ${onConflict(SENDERS, ADD_TO_SENDER)}`;
	return [{ name: "write_senders", text, values: [rowsFor(SENDERS, posts.map(postsColumns), new Bytes())] }];
}

function childRows(children: WrittenGroup["children"]): Columns[] {
	return [...children].flatMap(([id, of]) => [...of].map((child) => ({ conversation_id: id, child })));
}

/** Returns the query that adds the children that records name, if there are any. */
function childrenQueries(children: WrittenGroup["children"]): Query[] {
	const rows = childRows(children);
	if (rows.length === 0) return [];
	return [{ text: `${insertInto(CHILDREN)} ON CONFLICT DO NOTHING`, values: [rowsFor(CHILDREN, rows, new Bytes())] }];
}

/** Returns the statements that write a group in one transaction. The last one returns `first_update` and `first_event`. */
export async function groupQueries(group: WrittenGroup, notifies: boolean): Promise<Query[]> {
	return [
		...sideQueries(group),
		...(group.activities.size === 0 ? [] : [activitiesQuery(activityRows(group))]),
		...childrenQueries(group.children),
		// It locks the row of `positions`, so it is the last one.
		await writeQuery(group, notifies),
	];
}

/** Returns the statements that write what has no sequence of the group, of few rows. */
function sideQueries(group: WrittenGroup): Query[] {
	const withEntries = new Set([...group.updates, ...group.events].map(({ conversationId }) => conversationId));
	const changed = [...group.gaps.keys(), ...group.senders.keys()].filter((id) => !withEntries.has(id));
	return [
		...postsQueries(group.posts.all()),
		...writeGapsQueries(group.gaps),
		...(group.senders.size === 0 ? [] : [sendersQuery(group.senders)]),
		...(changed.length === 0 ? [] : [markChangedQuery(changed)]),
	];
}

/** Returns the query that gives conversations a sender, in each of the tables in which they are. */
function sendersQuery(senders: WrittenGroup["senders"]): Query {
	const rows = [...senders].map(([id, sender]) => ({ id, sender: encodeText(sender) }));
	return {
		text: `
			WITH r AS MATERIALIZED (
				SELECT * FROM json_to_recordset($1::json) AS r (id uuid, sender text)
			), activities AS (
				UPDATE conversation_updates.activities a SET sender = r.sender FROM r WHERE a.conversation_id = r.id
			)
			UPDATE conversation_updates.heads c SET sender = r.sender FROM r WHERE c.conversation_id = r.id
		`,
		values: [json(rows)],
	};
}

/** Returns the query that writes activities. The ownership of one that exists stays the same. */
function activitiesQuery(rows: readonly Columns[]): Query {
	return {
		name: "write_activities",
		text: `${insertInto(ACTIVITIES)} ${orReplace(ACTIVITIES, ["sender", "owner"])}`,
		values: [rowsFor(ACTIVITIES, rows, new Bytes())],
	};
}

function activityRows(group: WrittenGroup): Columns[] {
	return [...group.activities].map(([id, activity]) => ({
		...activityColumns(id, activity),
		...ownershipColumns(ownershipOf(group, id)),
	}));
}

function ownershipOf({ ownerships }: WrittenGroup, id: string): Ownership {
	const ownership = ownerships.get(id);
	if (ownership === undefined) throw new Error("the plan of a group is not complete");
	return ownership;
}

/** The rows of a group that may have provisional numbers. */
async function entryRows(group: WrittenGroup): Promise<Readonly<Record<"updates" | "events" | "heads", Columns[]>>> {
	const packed = await Promise.all(group.updates.map(({ record }) => packRecordAsync(record.bytes)));
	const updates = group.updates.map((update, n) => {
		const { redactionVersion, schemaVersion } = update.record;
		const record = { redactionVersion, schemaVersion, ...(packed[n] ?? missing()) };
		const { owner } = ownershipOf(group, update.conversationId);
		return { ...updateColumns({ ...update, record }), error_sequence: update.errorSequence, owner };
	});
	const events = group.events.map(({ event, ...posted }) => {
		const [text, secrets] = [columnOfEvent(event), packSecrets(event.secrets)];
		return {
			...eventColumns({ ...event, ...posted, text, secrets }),
			owner: ownershipOf(group, posted.conversationId).owner,
		};
	});
	const heads = [...group.heads].map(([id, head]) => {
		const ownership = group.ownerships.get(id);
		return { ...headColumns(id, head), ...(ownership && ownershipColumns(ownership)) };
	});
	return { updates, events, heads };
}

async function writeQuery(group: WrittenGroup, notifiesOthers: boolean): Promise<Query> {
	const { updates, events, heads } = await entryRows(group);
	const bytes = new Bytes();
	const errors = [...group.activities].flatMap(([id, { error }]) =>
		error !== undefined && error.sequence > PROVISIONAL ? [id] : [],
	);
	const notifies = notifiesOthers && updates.length + events.length > 0;
	const rows = [rowsFor(UPDATES, updates, bytes), rowsFor(EVENTS, events, bytes), rowsFor(HEADS, heads, bytes)];
	return {
		name: "write_group",
		text: WRITE_GROUP,
		values: [updates.length, events.length, bytes.all(), ...rows, notifies, errors],
	};
}

function missing(): never {
	throw new Error("the packed form of a record is missing");
}

const GAPS = tableOf("postgres", "gaps");

/** Returns the queries that write changes of gaps. The caller makes the views derive the rows of their conversations. */
function writeGapsQueries(changes: ReadonlyMap<string, WrittenGaps>): Query[] {
	const rows = (of: "closed" | "opened") =>
		[...changes].flatMap(([id, change]) => change[of].map((gap) => gapColumns({ ...gap, conversationId: id })));
	const [closed, opened] = [rows("closed"), rows("opened")];
	return [
		...(closed.length === 0 ? [] : [removeRows(GAPS, rowsFor(GAPS, closed, new Bytes()))]),
		...(opened.length === 0
			? []
			: [
					{
						name: "insert_gaps",
						text: `${insertInto(GAPS)} ${onConflict(GAPS, "NOTHING")}`,
						values: [rowsFor(GAPS, opened, new Bytes())],
					},
				]),
	];
}

/** Returns the query that makes the views derive the rows of conversations that change without an entry in a log. */
function markChangedQuery(conversationIds: readonly string[]): Query {
	return {
		name: "mark_changed",
		text: `INSERT INTO conversation_updates.changed_conversations SELECT id FROM unnest($1::uuid[]) AS id ORDER BY id
			ON CONFLICT DO NOTHING`,
		values: [conversationIds],
	};
}

/**
 * Writes a group into tables that Citus has spread, and commits. It takes the sequences first, so that all rows are values in
 * statements that Citus sends to the servers that have them. The groups of all processes are written one after the other
 * from then on.
 *
 * @returns the newest sequences before the group
 */
export async function commitSpread(
	transaction: Transaction,
	group: WrittenGroup,
	notifies: boolean,
): Promise<NewestSequences> {
	const { updates, events, heads } = await entryRows(group);
	const taken = await transaction.query(...sideQueries(group), {
		name: "take_sequences",
		text: `
			UPDATE conversation_updates.positions
			SET newest_update = newest_update + $1::bigint, newest_event = newest_event + $2::bigint
			RETURNING newest_update - $1::bigint AS first_update, newest_event - $2::bigint AS first_event
		`,
		values: [updates.length, events.length],
	});
	const [row] = taken.at(-1) ?? [];
	const before = { updates: bigint(row?.first_update), events: bigint(row?.first_event) };
	const final = (table: Table, rows: readonly Columns[]) =>
		rows.map((row) => storedRow(table, finalRow(table, row, before)));
	const finalEvents = final(EVENTS, events).map((row) => ({ ...row, size: sizeOfEvent(row) }));
	const newest = `${before.updates + BigInt(updates.length)} ${before.events + BigInt(events.length)}`;
	await transaction.commit(
		...insertValues(UPDATES, final(UPDATES, updates)),
		...insertValues(EVENTS, finalEvents),
		...eventTimesQueries(finalEvents),
		...insertValues(HEADS, final(HEADS, heads), orReplace(HEADS, ["sender", "owner"])),
		...insertValues(ACTIVITIES, final(ACTIVITIES, activityRows(group)), orReplace(ACTIVITIES, ["sender", "owner"])),
		...insertValues(CHILDREN, final(CHILDREN, childRows(group.children)), "ON CONFLICT DO NOTHING"),
		...notifyQueries(notifies && updates.length + events.length > 0, newest),
	);
	return before;
}

/** Returns a row with the final numbers in place of provisional ones. */
function finalRow({ name: table }: Table, row: Columns, before: NewestSequences): Columns {
	const final: Record<string, Value | undefined> = { ...row };
	for (const name in row) {
		const [value, of] = [row[name], PROVISIONAL_COLUMNS[`${table}.${name}`]];
		if (of === undefined || typeof value !== "bigint" || value <= PROVISIONAL) continue;
		final[name] = (of === "first_update" ? before.updates : before.events) + (value - PROVISIONAL);
	}
	return final;
}
