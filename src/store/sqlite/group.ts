import type { ServiceError } from "../../errors.ts";
import type { Activity } from "../activity.ts";
import type { GroupRequest } from "../duplicates.ts";
import { type Erasure, erasureFrom, idDigest } from "../erasure.ts";
import { findExplained, type Gaps, gapColumns, gapsOf, gapsSql, type WrittenGaps } from "../gaps.ts";
import {
	completePlan,
	type GroupQuery,
	groupQuery,
	type Head,
	type KnownConversation,
	type PlanReads,
	type PlanResults,
	type WrittenGroup,
} from "../group.ts";
import { type AppendOutcome, planGroup } from "../group-plan.ts";
import type { Ownership } from "../owners.ts";
import { columnOfEvent, packRecord, packSecrets, readOrUnreadable } from "../record-column.ts";
import {
	activityColumns,
	activityFrom,
	eventColumns,
	headColumns,
	ownershipColumns,
	ownershipFrom,
	stateFrom,
	updateColumns,
	withErrorSequence,
} from "../rows.ts";
import { addToSender, postsColumns } from "../senders.ts";
import type { Session } from "../session.ts";
import type { EventRow, UpdateRow } from "../stored-rows.ts";
import { bigint, boolean, integer, nullable, type Row, text } from "../values.ts";
import { newestOf } from "./log.ts";
import { RecordReader } from "./session.ts";
import { insertInto, type Statements, widenEventTimes } from "./statements.ts";

/** The rows of a conversation before a group. */
interface FoundRows {
	readonly head: KnownHead | undefined;
	/** Row id of the activity. */
	readonly activity: bigint | undefined;
}

/**
 * Appends a group. The caller has begun a transaction.
 *
 * @returns what was written, and the outcomes of the requests, in their order
 */
export async function appendGroup<Request extends GroupRequest>(
	statements: Statements,
	session: Session,
	requests: readonly Request[],
	refusalOf: (request: Request) => ServiceError | undefined,
): Promise<{ readonly written: WrittenGroup; readonly outcomes: readonly AppendOutcome[] }> {
	const { known, found } = readKnown(statements, groupQuery(requests));
	const newest = { updates: newestOf(statements, "updates"), events: newestOf(statements, "events") };
	const planning = planGroup(requests, known, newest, refusalOf);
	const { written, outcomes } = await completePlan(planning, (reads) => readForPlan(statements, session, reads));
	writeGroup(statements, written, found);
	return { written, outcomes };
}

function readKnown(statements: Statements, { conversationIds, versions, events, named }: GroupQuery) {
	const known = new Map<string, KnownConversation>();
	const forks = findForks(
		statements,
		events.map(({ eventId }) => eventId),
	);
	const found = new Map<string, FoundRows>();
	for (const id of conversationIds) {
		const head = findHead(statements, id);
		const activity = findActivity(statements, id);
		found.set(id, { head, activity: activity?.id });
		known.set(id, {
			state: head?.state,
			activity,
			newestPosted: readNewestPosted(statements, head),
			...readForm(statements, versions.has(id) ? head?.state.sequence : undefined),
			eventIds: new Set(),
			removed: head === undefined && activity === undefined ? findRemoved(statements, id) : undefined,
			ownership: head?.ownership ?? activity?.ownership,
			gaps: findGaps(statements, id),
			source: head?.source,
			parent: head?.parent,
			forks,
			erasure: head === undefined && activity === undefined ? findErasure(statements, id) : undefined,
		});
	}
	const isStored = statements.prepare("SELECT 1 FROM events WHERE activity = ? AND event_id = ?");
	for (const { conversationId, eventId } of [...events, ...named]) {
		const activity = found.get(conversationId)?.activity;
		if (activity !== undefined && isStored.get(activity, eventId) !== undefined)
			known.get(conversationId)?.eventIds.add(eventId);
	}
	return { known, found };
}

/** Returns the ownership of a conversation that was removed, and of which usage is kept. */
function findRemoved(statements: Statements, conversationId: string): KnownConversation["removed"] {
	const row = statements
		.prepare("SELECT sender, owner FROM usage_conversations WHERE conversation_id = ?")
		.get(conversationId);
	return row && { sender: text(row.sender), owner: text(row.owner) };
}

/** Returns what is kept of a conversation of which nothing else is stored, if it was erased. */
function findErasure(statements: Statements, conversationId: string): Erasure | undefined {
	const row = statements.prepare("SELECT * FROM erasures WHERE id_digest = ?").get(idDigest(conversationId));
	return row && erasureFrom(row, text);
}

function readNewestPosted(statements: Statements, head: KnownHead | undefined): KnownConversation["newestPosted"] {
	const sequence = head?.state.newestPosted?.sequence;
	if (sequence === undefined) return undefined;
	const row = statements
		.prepare("SELECT change, current, schema_version FROM updates WHERE sequence = ?")
		.get(sequence);
	return (
		row && {
			change: integer(row.change),
			current: boolean(row.current),
			schemaVersion: integer(row.schema_version),
		}
	);
}

/**
 * Reads the form in which the current record is stored.
 *
 * @param sequence of the current update; undefined when the form is not needed
 */
function readForm(statements: Statements, sequence: bigint | undefined): Pick<KnownConversation, "base" | "delta"> {
	if (sequence === undefined) return { base: undefined, delta: undefined };
	const row = statements
		.prepare(`
			SELECT u.base_sequence, coalesce(b.size, u.size) AS base_size
			FROM updates u LEFT JOIN updates b ON b.sequence = u.base_sequence WHERE u.sequence = ?
		`)
		.get(sequence);
	const base = nullable(bigint, row?.base_sequence);
	return {
		base: { sequence: base ?? sequence, size: integer(row?.base_size) },
		delta: base === undefined ? undefined : new RecordReader(statements).readRaw(sequence),
	};
}

async function readForPlan(
	statements: Statements,
	session: Session,
	{ records: sequences, missing }: PlanReads,
): Promise<PlanResults> {
	const records = new RecordReader(statements);
	return {
		explained: missing && (await findExplained(session, missing)),
		records: new Map(sequences.map((sequence) => [sequence, readOrUnreadable(() => records.readRaw(sequence))])),
	};
}

const ADD_TO_SENDER = addToSender({ least: "min", greatest: "max" });

function writeGroup(statements: Statements, written: WrittenGroup, found: ReadonlyMap<string, FoundRows>): void {
	for (const posts of written.posts.all()) insertInto(statements, "senders", postsColumns(posts), ADD_TO_SENDER);
	const activities = new Map<string, bigint>();
	for (const [id, activity] of written.activities)
		activities.set(
			id,
			writeActivity(statements, id, found.get(id)?.activity, activity, present(written.ownerships.get(id))),
		);
	const heads = new Map<string, bigint>();
	for (const [id, after] of written.heads) {
		const head = found.get(id)?.head;
		if (head !== undefined) updateHead(statements, head, id, after);
		heads.set(id, head?.id ?? insertHead(statements, id, after, present(written.ownerships.get(id))));
	}
	const withEntries = new Set([...written.updates, ...written.events].map(({ conversationId }) => conversationId));
	for (const [id, changes] of written.gaps) {
		writeGaps(statements, id, changes);
		if (!withEntries.has(id)) markChanged(statements, id);
	}
	for (const [id, children] of written.children)
		for (const child of children) insertInto(statements, "children", { conversation_id: id, child }, "NOTHING");
	for (const update of written.updates) {
		const { redactionVersion, schemaVersion, bytes } = update.record;
		const record = { redactionVersion, schemaVersion, ...packRecord(bytes) };
		const activity = withErrorSequence(update.activity, update.errorSequence);
		const { owner } = present(written.ownerships.get(update.conversationId));
		const conversation = present(heads.get(update.conversationId));
		insertUpdate(statements, conversation, owner, { ...update, activity, record });
	}
	for (const { sequence, conversationId, receivedAt, sender, origin, event } of written.events) {
		const [text, secrets] = [columnOfEvent(event), packSecrets(event.secrets)];
		const { owner } = present(written.ownerships.get(conversationId));
		const activity = present(activities.get(conversationId));
		const row = { ...event, sequence, conversationId, receivedAt, sender, origin, text, secrets };
		insertEvent(statements, activity, owner, row);
	}
	widenEventTimes(
		statements,
		written.events.map(({ sequence, event: { happenedAt } }) => ({ sequence, happenedAt })),
	);
	for (const [id, sender] of written.senders) {
		for (const table of ["heads", "activities"])
			statements.prepare(`UPDATE ${table} SET sender = ? WHERE conversation_id = ?`).run(sender, id);
		if (!withEntries.has(id)) markChanged(statements, id);
	}
}

/** Makes the views derive the rows of a conversation that changes without an entry in a log. */
function markChanged(statements: Statements, conversationId: string): void {
	insertInto(statements, "changed_conversations", { conversation_id: conversationId }, "NOTHING");
}

/** Returns a value that every plan has. */
function present<Value>(value: Value | undefined): Value {
	if (value === undefined) throw new Error("the plan of a group is not complete");
	return value;
}

const FIND = gapsSql("", "g.conversation_id = ?");

/** Returns the gaps of a conversation. */
function findGaps(statements: Statements, conversationId: string): Gaps {
	return gapsOf(statements.prepare(FIND).all(conversationId), conversationId, text);
}

/** Writes changes of the gaps of a conversation. The caller makes the views derive its rows. */
function writeGaps(statements: Statements, conversationId: string, { closed, opened }: WrittenGaps): void {
	const remove = statements.prepare("DELETE FROM gaps WHERE conversation_id = ? AND kind = ? AND missing = ?");
	for (const { kind, missing } of closed) remove.run(conversationId, kind, missing);
	for (const gap of opened) insertInto(statements, "gaps", gapColumns({ ...gap, conversationId }), "NOTHING");
}

/**
 * Returns the forks, and conversations without a record that may be forks, with a gap for one of the events, by the ids of these. Events of different conversations can have the
 * same id.
 */
function findForks(statements: Statements, eventIds: readonly string[]): ReadonlyMap<string, readonly string[]> {
	const forks = new Map<string, string[]>();
	if (eventIds.length === 0) return forks;
	// One statement for all: most groups have many events, and no event closes a gap of a fork.
	const rows = statements
		.prepare(`
			SELECT g.missing, g.conversation_id FROM json_each(?) e CROSS JOIN gaps g ON g.missing = e.value
			LEFT JOIN heads c ON c.conversation_id = g.conversation_id
			WHERE g.kind IN ('missing_parent', 'missing_leaf') AND (
				c.source_id IS NOT NULL OR (g.after_event_id IS NULL AND EXISTS (
					SELECT 1 FROM gaps n WHERE n.conversation_id = g.conversation_id AND n.kind = 'no_record'
				))
			)
		`)
		.all(JSON.stringify(eventIds));
	for (const { missing, conversation_id } of rows)
		forks.set(text(missing), [...(forks.get(text(missing)) ?? []), text(conversation_id)]);
	return forks;
}

/**
 * @param conversation row id of the update's conversation
 * @param owner that of the conversation
 */
function insertUpdate(
	statements: Statements,
	conversation: bigint,
	owner: string | undefined,
	update: UpdateRow,
): void {
	insertInto(statements, "updates", { ...updateColumns(update), conversation });
	if (owner !== undefined) insertInto(statements, "updates_of_owners", { owner, sequence: update.sequence });
}

/**
 * Inserts an event. The caller also calls {@link widenEventTimes}.
 *
 * @param activity row id of its conversation's activity
 * @param owner that of the conversation
 */
function insertEvent(statements: Statements, activity: bigint, owner: string | undefined, event: EventRow): void {
	insertInto(statements, "events", { ...eventColumns(event), activity });
	if (owner !== undefined) insertInto(statements, "events_of_owners", { owner, sequence: event.sequence });
}

/** The head of a conversation that has a record: what the next append depends on. */
interface KnownHead extends Head {
	readonly id: bigint;
	readonly row: Row;
	readonly ownership: Ownership;
}

/** Finds the head of a conversation; returns undefined when it has no record. */
function findHead(statements: Statements, conversationId: string): KnownHead | undefined {
	const row = statements.prepare("SELECT * FROM heads WHERE conversation_id = ?").get(conversationId);
	if (row === undefined) return undefined;
	return {
		id: bigint(row.id),
		row,
		state: stateFrom(row, text),
		ownership: ownershipFrom(row, text),
		source: nullable(text, row.source_id),
		parent: nullable(text, row.parent_id),
	};
}

/** Inserts the head of a conversation. Returns its row id. */
function insertHead(statements: Statements, conversationId: string, head: Head, ownership: Ownership): bigint {
	insertInto(statements, "heads", { ...headColumns(conversationId, head), ...ownershipColumns(ownership) });
	return bigint(statements.prepare("SELECT last_insert_rowid() AS id").get()?.id);
}

/** Writes what changes of a head: SQLite writes the index of each column that a statement names. */
function updateHead(statements: Statements, { id, row }: KnownHead, conversationId: string, after: Head): void {
	const changed = Object.entries(headColumns(conversationId, after))
		.map(([name, value]) => [name, typeof value === "boolean" ? BigInt(value) : value] as const)
		.filter(([name, value]) => row[name] !== value);
	if (changed.length === 0) return;
	const assignments = changed.map(([name]) => `${name} = ?`);
	statements
		.prepare(`UPDATE heads SET ${assignments.join()} WHERE id = ?`)
		.run(...changed.map(([, value]) => value), id);
}

/** Finds the activity of a conversation, with its row id; returns undefined when it has none. */
function findActivity(
	statements: Statements,
	conversationId: string,
): (Activity & { readonly id: bigint; readonly ownership: Ownership }) | undefined {
	const row = statements.prepare("SELECT * FROM activities WHERE conversation_id = ?").get(conversationId);
	return row && { id: bigint(row.id), ownership: ownershipFrom(row, text), ...activityFrom(row, text) };
}

/**
 * Writes the activity of a conversation. One that exists keeps its ownership.
 *
 * @param known row id of the activity; undefined if it has no row yet
 * @returns the row id
 */
function writeActivity(
	statements: Statements,
	conversationId: string,
	known: bigint | undefined,
	activity: Activity,
	ownership: Ownership,
): bigint {
	const columns = activityColumns(conversationId, activity);
	if (known === undefined) {
		insertInto(statements, "activities", { ...columns, ...ownershipColumns(ownership) });
		return bigint(statements.prepare("SELECT last_insert_rowid() AS id").get()?.id);
	}
	const { conversation_id, ...changed } = columns;
	const assignments = Object.keys(changed).map((name) => `${name} = ?`);
	statements.prepare(`UPDATE activities SET ${assignments.join()} WHERE id = ?`).run(...Object.values(changed), known);
	return known;
}
