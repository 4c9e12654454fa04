import { randomUUID } from "node:crypto";
import { fromBinary, fromJson, type JsonValue } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { ConversationExecutionStatus, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { ConversationStatsSchema } from "../../../gen/conversations/v1/stats_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { toMicroseconds } from "../../record/json/scalars.ts";
import { decodeDelta, readMembers } from "../../record/record-delta.ts";
import { AMOUNTS, type Amounts, addAmounts, negated } from "../../usage/amounts.ts";
import { digestOf, type FirstState, firstStateOf, Ledger, type ShownRecord, shownUsages } from "../../usage/ledger.ts";
import { nameOf } from "../../usage/names.ts";
import { comparableTime, MAX_CLOCK_SKEW } from "../ordering.ts";
import { unpackRecord } from "../record-column.ts";
import {
	AMOUNT_COLUMNS,
	amountColumns,
	amountsFrom,
	columnsFrom,
	PERIODS,
	packedColumnsFrom,
	periodStart,
} from "../rows.ts";
import type { Columns, Session } from "../session.ts";
import { type TableName, tableOf } from "../tables.ts";
import { columnsOf } from "../typed-rows.ts";
import { bigint, integer, nullable, type RecordColumn, type Row, text } from "../values.ts";
import { type Entries, lockView, moveView, NOTHING, readEntries, timeOf, updateFrom } from "./follow.ts";

/**
 * The view of usage: what the calls of each conversation cost, with sums over conversations. The records of a conversation are
 * followed in the order of the log (see usage/ledger.ts): of those that follow each other in a quarter of an hour only the
 * last, which has what the others had. The rows that differ are written, and the difference is added to the sums.
 *
 * When entries of a conversation are removed from a log, what was booked is kept from then on, also when the view is reset.
 */

const NAMES = ["model", "usage_id", "agent_kind"] as const;
/** Length of a day in quarters of an hour. */
const DAY = 96n;

/** Maximum size of records that are read together. */
const MAX_TOGETHER = 32 * 1024;
const { stats: STATS, createdAt: CREATED_AT, forkedFromConversationId: FORKED_FROM } = ConversationInfoSchema.field;
const MEMBERS = new Set([STATS, CREATED_AT, FORKED_FROM].map(({ number }) => number));

/** What is known of a conversation, and changes in a step. */
interface State {
	readonly id: string;
	/** The columns as they are stored; undefined if there is no row. */
	readonly stored: (Whose & { readonly ledger: string }) | undefined;
	readonly ledger: Ledger;
	readonly whose: Whose;
	readonly isFork: boolean;
	/** Sequence of the current record. */
	readonly current: bigint | undefined;
	/** What is followed. */
	entries: Entries | undefined;
	/** Whether the current record is followed again, if it was followed. */
	readonly isForced: boolean;
	/** The stored rows that the ledger has: those of a table are missing until they are read. */
	readonly rows: Partial<Record<LedgerTable, readonly Row[]>>;
	isChanged: boolean;
}

type LedgerTable = "usage_ledger" | "untimed_calls";

/** Whose a conversation is. Texts are those of `nameOf`, empty without one. */
interface Whose {
	readonly sender: string;
	readonly owner: string;
}

/**
 * Counts what the view has not followed of some conversations, before entries of them are removed or changed. What was seen of
 * them is kept when the view is reset. Locks the view.
 */
export async function keepUsage(session: Session, conversationIds: readonly string[]): Promise<void> {
	const entries = await readEntries(session, await lockView(session, "usage"), conversationIds);
	await deriveUsage(session, [...entries.keys()], { entries });
	await session.all(
		`UPDATE ${session.dialect.schema}usage_conversations SET is_kept = TRUE WHERE ${session.isIn("conversation_id")}`,
		conversationIds,
	);
}

/** Removes what was seen of conversations that were removed and had no usage. */
export async function removeUnused({ dialect, all, isIn }: Session, conversationIds: readonly string[]): Promise<void> {
	const { schema } = dialect;
	await all(
		`DELETE FROM ${schema}untimed_calls AS c WHERE ${isIn("c.conversation_id")}
			AND NOT EXISTS (SELECT 1 FROM ${schema}heads h WHERE h.conversation_id = c.conversation_id)`,
		conversationIds,
	);
	await all(
		`DELETE FROM ${schema}usage_conversations AS k WHERE ${isIn("k.conversation_id")} ${[
			"usage_ledger",
			"heads",
			"activities",
		]
			.map((table) => `AND NOT EXISTS (SELECT 1 FROM ${schema}${table} o WHERE o.conversation_id = k.conversation_id)`)
			.join(" ")}`,
		conversationIds,
	);
}

/** Makes the usage of a conversation that was erased, and kept before, that of nobody. */
export async function forgetUsage(session: Session, conversationId: string): Promise<void> {
	const { dialect, all } = session;
	const { schema } = dialect;
	await removeUnused(session, [conversationId]);
	const erasedId = randomUUID();
	// With Citus a row with another id is on another server, so it cannot be changed in its place.
	const move = async (table: TableName, change: Columns = {}) => {
		const rows = await all(`DELETE FROM ${schema}${table} WHERE conversation_id = ? RETURNING *`, conversationId);
		await session.insert(
			table,
			rows.map((row) => ({ ...columnsFrom(row), conversation_id: erasedId, ...change })),
		);
	};
	for (const table of ["usage_ledger", "usage_days"] as const) await move(table);
	await move("usage_conversations", { is_kept: true, ledger: "" });
}

/** Gives the usage of conversations an owner. Locks the view. */
export async function assignUsage(session: Session, conversationIds: readonly string[], owner: string): Promise<void> {
	await lockView(session, "usage");
	await deriveUsage(session, conversationIds, { owner });
}

/** Removes all that follows from the logs, so that the view follows both from their beginning. */
export async function resetUsage(session: Session): Promise<void> {
	await lockView(session, "usage");
	const { schema, sum } = session.dialect;
	const kept = `SELECT conversation_id FROM ${schema}usage_conversations WHERE is_kept`;
	await session.all(`DELETE FROM ${schema}usage_ledger WHERE conversation_id NOT IN (${kept})`);
	for (const [table, test] of [
		["usage_conversations", "NOT is_kept"],
		["untimed_calls", "TRUE"],
		["usage_sums", "TRUE"],
		["usage_days", "TRUE"],
	])
		await session.all(`DELETE FROM ${schema}${table} WHERE ${test}`);
	const start = (length: bigint) => `l.quarter - (l.quarter % ${length} + ${length}) % ${length}`;
	for (const length of PERIODS)
		await session.all(
			`INSERT INTO ${schema}usage_sums (length, start, ${[...NAMES, "sender", "owner", ...AMOUNT_COLUMNS].join()})
			SELECT ${length}, ${start(length)}, l.model, l.usage_id, l.agent_kind, k.sender, k.owner,
				${AMOUNT_COLUMNS.map((name) => sum(`l.${name}`)).join()}
			FROM ${schema}usage_ledger l JOIN ${schema}usage_conversations k ON k.conversation_id = l.conversation_id
			GROUP BY 1, 2, 3, 4, 5, 6, 7`,
		);
	await session.all(
		`INSERT INTO ${schema}usage_days (day, model, conversation_id, usage_id, agent_kind)
		SELECT DISTINCT (${start(96n)}) / 96, l.model, l.conversation_id, l.usage_id, l.agent_kind FROM ${schema}usage_ledger l`,
	);
	// Their current records are followed again.
	await session.all(
		`INSERT INTO ${schema}changed_conversations
		SELECT conversation_id FROM ${schema}usage_conversations WHERE is_kept AND ledger <> '' ON CONFLICT DO NOTHING`,
	);
	await moveView(session, "usage", NOTHING);
}

/** What is derived of conversations. */
interface Derived {
	/** What is followed. */
	readonly entries?: ReadonlyMap<string, Entries>;
	/** Conversations whose current records are followed again. */
	readonly marked?: ReadonlySet<string>;
	/** That of all of them. Default: that of each. */
	readonly owner?: string;
}

/** Derives the rows of conversations. The view is locked. */
export async function deriveUsage(
	session: Session,
	conversationIds: readonly string[],
	derived: Derived,
): Promise<void> {
	if (conversationIds.length === 0) return;
	const states = await readStates(session, conversationIds, derived);
	// The records before one that is forced come first, also those that are not read yet: each says when it first showed something.
	const ahead = states.filter(({ isForced, current, entries, ledger }) => {
		if (!isForced || current === undefined || ledger.hasFollowed(current)) return false;
		return entries?.updates.at(-1)?.sequence !== current;
	});
	if (ahead.length > 0) {
		const ids = ahead.map(({ id }) => id);
		const entries = await readEntries(session, await lockView(session, "usage"), ids);
		for (const state of ahead) state.entries = entries.get(state.id) ?? state.entries;
	}
	await timeCalls(session, states);
	const updates = states.map((state) => [state, updatesToFollow(state)] as const);
	for (let n = 0; ; n++) {
		const next = new Map(updates.flatMap(([state, list]) => list.slice(n, n + 1).map((update) => [update, state])));
		if (next.size === 0) break;
		await followRecords(session, next);
	}
	await writeStates(session, states);
}

/** Returns the sequences of the updates that are followed, in the order of the log. */
function updatesToFollow({ entries, ledger, isForced, current }: State): readonly bigint[] {
	const sequences = (entries?.updates ?? []).map(({ sequence }) => sequence);
	const list = sequences.filter((sequence) => !ledger.hasFollowed(sequence));
	return isForced && current !== undefined && list.at(-1) !== current ? [...list, current] : list;
}

/** Reads updates of conversations, by their sequences. */
async function readUpdates(
	session: Session,
	conversationIds: readonly string[],
	sequences: readonly bigint[],
): Promise<ReadonlyMap<bigint, Row>> {
	if (sequences.length === 0) return new Map();
	const rows = await session.all(
		`SELECT e.sequence, e.conversation_id, e.current, e.origin, e.received_at, e.base_sequence,
			e.unpacked_size, e.checksum, e.summary, e.activity,
			CASE WHEN e.size <= ${MAX_TOGETHER} THEN e.record END AS record
		FROM ${session.dialect.schema}updates e
		WHERE ${session.isAmong("e.sequence")} AND ${session.isIn("e.conversation_id")}`,
		sequences,
		conversationIds,
	);
	return new Map(rows.map((row) => [bigint(row.sequence), row]));
}

/** Moves calls that no event has timed to the times of new events. */
async function timeCalls(session: Session, states: readonly State[]): Promise<void> {
	const shown = states.filter(({ entries }) => entries !== undefined && entries.responses.length > 0);
	await load(session, shown, "untimed_calls");
	const timed = shown.filter(({ ledger, entries }) => {
		const ids = new Set(entries?.responses.map(({ responseId }) => responseId));
		return ledger.untimed.some(({ responseId }) => ids.has(responseId));
	});
	await load(session, timed, "usage_ledger");
	for (const state of timed) {
		state.ledger.time(state.entries?.responses ?? []);
		state.isChanged = true;
	}
}

/** A record that is followed. */
interface ReadRecord {
	readonly state: State;
	readonly record: ShownRecord;
	readonly plan: ReturnType<Ledger["plan"]>;
}

/**
 * Follows one update of each of some conversations.
 *
 * @param updates the conversations, by the sequences of their updates
 */
async function followRecords(session: Session, updates: ReadonlyMap<bigint, State>): Promise<void> {
	const rows = await readUpdates(
		session,
		[...updates.values()].map(({ id }) => id),
		[...updates.keys()],
	);
	const read: ReadRecord[] = [];
	for (const [sequence, state] of updates) {
		const row = rows.get(sequence);
		const one = row && (await readRecord(session, row));
		if (one === undefined) continue;
		// A conversation without stats needs no row.
		if (one.stats.byteLength === 0 && state.stored === undefined) continue;
		const { stats, ...shown } = one;
		const digest = digestOf(stats);
		const isFork = one.isCurrent ? state.isFork : one.isFork;
		if (one.isCurrent && !state.isForced && state.ledger.hasSeen({ ...shown, digest })) continue;
		const usages = attempt(() => shownUsages(fromBinary(ConversationStatsSchema, stats)));
		if (usages === undefined) continue;
		const record = { ...shown, isFork, sequence, digest, usages };
		read.push({ state, record, plan: state.ledger.plan(record) });
	}
	await load(
		session,
		read.map(({ state }) => state),
		"usage_ledger",
	);
	await load(
		session,
		read.filter(({ plan }) => !plan.isContinued).map(({ state }) => state),
		"untimed_calls",
	);
	const times = await readTimes(session, read);
	for (const { state, record } of read) {
		const isFork = record.isFork && record.isCurrent;
		const mayChange = isFork && (state.ledger.firstState === undefined || state.entries?.hasEvents === true);
		state.ledger.follow(record, {
			times: times.get(state.id) ?? new Map(),
			first: mayChange ? await readFirstState(session, state.id) : undefined,
		});
		state.isChanged = true;
	}
}

/** Reads the times of the first events with the responses of records, by conversation and response. */
async function readTimes(
	session: Session,
	read: readonly ReadRecord[],
): Promise<ReadonlyMap<string, ReadonlyMap<string, number>>> {
	const { dialect, all } = session;
	const times = new Map<string, Map<string, number>>();
	const pairs = read.flatMap(({ state, plan }) => plan.responses.map((id) => [state.id, id]));
	if (pairs.length === 0) return times;
	const rows = await all(
		`SELECT e.conversation_id, e.llm_response_id, e.happened_at
		FROM (${dialect.rowsOf({ conversation_id: "id", response_id: "text" })}) p ${dialect.join} ${dialect.schema}events e
			ON e.conversation_id = p.conversation_id AND e.llm_response_id = p.response_id
		ORDER BY e.sequence`,
		{ rows: pairs },
	);
	for (const row of rows) {
		const of = times.getOrInsertComputed(text(row.conversation_id), () => new Map());
		of.getOrInsert(text(row.llm_response_id), Number(bigint(row.happened_at)));
	}
	return times;
}

/** Reads what the earliest posted event of a fork shows; null if it is no full state, undefined without events. */
async function readFirstState(session: Session, id: string): Promise<FirstState | null | undefined> {
	const { dialect, all } = session;
	// What is fetched may be a copy of an event of the source.
	const [row] = await all(
		`SELECT e.text, e.unpacked_size, e.checksum FROM ${dialect.schema}events e
		WHERE e.conversation_id = ? AND (e.origin IS NULL OR e.origin = ${UpdateOrigin.POSTED})
		ORDER BY e.happened_at, CASE WHEN e.kind = '${STATE_UPDATE}' THEN 0 ELSE 1 END, e.sequence LIMIT 1`,
		id,
	);
	if (row === undefined) return undefined;
	const first = attempt(() => {
		const event: unknown = JSON.parse(new TextDecoder().decode(unpackRecord(packedColumnsFrom(row, "text"))));
		if (memberOf(event, "key") !== "full_state") return undefined;
		const stats = memberOf(memberOf(event, "value"), "stats") ?? {};
		return firstStateOf(fromJson(ConversationStatsSchema, stats, { ignoreUnknownFields: true }));
	});
	return first ?? null;
}

/** Kind of the events that report members of the record. */
const STATE_UPDATE = "ConversationStateUpdateEvent";

function memberOf(value: unknown, name: string): JsonValue | undefined {
	return typeof value === "object" && value !== null ? Object.getOwnPropertyDescriptor(value, name)?.value : undefined;
}

/** Reads what is known of conversations. */
async function readStates(
	session: Session,
	conversationIds: readonly string[],
	{ entries, marked, owner }: Derived,
): Promise<readonly State[]> {
	const { dialect, isIn } = session;
	const [found, current] = await Promise.all([
		session.all(
			`SELECT conversation_id, sender, owner, ledger FROM ${dialect.schema}usage_conversations
			WHERE ${isIn("conversation_id")} AND ledger <> ''`,
			conversationIds,
		),
		session.all(
			`SELECT conversation_id, sender, owner, sequence, source_id FROM ${dialect.schema}heads
			WHERE ${isIn("conversation_id")}`,
			conversationIds,
		),
	]);
	const heads = new Map(current.map((row) => [text(row.conversation_id), row]));
	const rows = new Map(found.map((row) => [text(row.conversation_id), row]));
	return conversationIds.map((id) => {
		const [row, head, of] = [rows.get(id), heads.get(id), entries?.get(id)];
		const stored = row && { sender: text(row.sender), owner: text(row.owner), ledger: text(row.ledger) };
		const ledger = new Ledger(stored?.ledger);
		const name = (column: "sender" | "owner") => nameOf(nullable(text, head?.[column] ?? null) ?? "");
		const known = head === undefined ? (stored?.owner ?? "") : name("owner");
		const whose = {
			sender: name("sender") === "" ? (stored?.sender ?? "") : name("sender"),
			owner: owner === undefined ? known : nameOf(owner),
		};
		const isFork = ledger.isFork || (head?.source_id ?? null) !== null;
		// The events of a fork may tell what it took over.
		const isForced = marked?.has(id) === true || (isFork && of?.hasEvents === true);
		return {
			...{ id, stored, whose, isFork, isForced, entries: of, isChanged: false, ledger },
			current: nullable(bigint, head?.sequence ?? null),
			rows: stored === undefined ? { usage_ledger: [], untimed_calls: [] } : {},
		};
	});
}

/** Reads the rows of a table into the ledgers that do not have them. */
async function load(session: Session, states: readonly State[], table: LedgerTable): Promise<void> {
	const { dialect, all, isIn } = session;
	const unread = new Set(states.filter(({ rows }) => rows[table] === undefined));
	if (unread.size === 0) return;
	const found = await all(
		`SELECT * FROM ${dialect.schema}${table} WHERE ${isIn("conversation_id")}`,
		[...unread].map(({ id }) => id),
	);
	const byId = Map.groupBy(found, (row) => text(row.conversation_id));
	for (const { id, ledger, rows } of unread) {
		const own = byId.get(id) ?? [];
		rows[table] = own;
		if (table === "usage_ledger")
			ledger.load(own.map((row) => ({ ...callFrom(row), agentKind: text(row.agent_kind) })));
		else
			ledger.loadUntimed(
				own.map((row) => ({
					...callFrom(row),
					...{ position: integer(row.position), responseId: text(row.response_id) },
				})),
			);
	}
}

function callFrom(row: Row) {
	const key = { usageId: text(row.usage_id), model: text(row.model), quarter: bigint(row.quarter) };
	return { ...key, ...amountsFrom(row) };
}

/** Reads a record with its encoded stats; undefined when it cannot be read. It is not decoded as a whole. */
async function readRecord(
	session: Session,
	row: Row,
): Promise<(Omit<ShownRecord, "sequence" | "digest" | "usages"> & { readonly stats: Uint8Array }) | undefined> {
	const members = await readMembersOf(session, row);
	if (members === undefined) return undefined;
	const update = updateFrom(row);
	const { receivedAt, origin, summary, current: isCurrent } = update;
	const time = Number(timeOf(update));
	const created = members.get(CREATED_AT.number);
	const createdAt = created && attempt(() => toMicroseconds(fromBinary(TimestampSchema, created)));
	// What events make belongs to the present life.
	const life = origin === UpdateOrigin.EVENTS ? undefined : comparableTime(createdAt, receivedAt);
	const isDeleting = summary.executionStatus === ConversationExecutionStatus.DELETING;
	return {
		...{ stats: members.get(STATS.number) ?? new Uint8Array(), time, latest: Number(receivedAt + MAX_CLOCK_SKEW) },
		...{ life: life === undefined ? undefined : Number(life), agentKind: summary.agentKind },
		...{ isFork: members.has(FORKED_FROM.number), isCurrent },
		// One that deletes the conversation is the last of its life.
		rank: isDeleting ? time + 1e18 : time,
	};
}

/** Reads some members of the record of an update; undefined for bytes that cannot be read, which are not counted. */
async function readMembersOf(session: Session, row: Row): Promise<ReadonlyMap<number, Uint8Array> | undefined> {
	const record = await packedOf(session, row);
	const base = nullable(bigint, row.base_sequence);
	if (base === undefined) return attempt(() => readMembers(unpackRecord(record), MEMBERS));
	const delta = attempt(() => decodeDelta(unpackRecord(record)));
	if (delta === undefined || delta.members.has(STATS.number))
		return delta && attempt(() => readMembers(delta.values, MEMBERS));
	const whole = await packedOf(session, { sequence: base, record: null });
	return attempt(() => readMembers(unpackRecord(whole), MEMBERS));
}

/** Returns the result of `read`; undefined for bytes that cannot be read. */
function attempt<Read>(read: () => Read): Read | undefined {
	try {
		return read();
	} catch {
		return undefined;
	}
}

/** Returns a packed record, which is in the row unless it is large. */
async function packedOf({ dialect, all }: Session, row: Row): Promise<RecordColumn> {
	if (row.record !== null) return packedColumnsFrom(row, "record");
	const [found] = await all(
		`SELECT record, unpacked_size, checksum FROM ${dialect.schema}updates WHERE sequence = ?`,
		bigint(row.sequence),
	);
	return packedColumnsFrom(found, "record");
}

/** Writes what changed of conversations: their rows, and the sums that differ. */
async function writeStates(session: Session, states: readonly State[]): Promise<void> {
	const changed = states.filter(
		({ isChanged, stored, whose }) => isChanged || (stored !== undefined && !isOfSame(stored, whose)),
	);
	if (changed.length === 0) return;
	await load(session, changed, "usage_ledger");
	const assigned = ["sender", "owner", "life_began_at", "ledger"].map((name) => `${name} = excluded.${name}`);
	await session.insert("usage_conversations", changed.flatMap(stateColumns), `UPDATE SET ${assigned.join()}`);
	const sums = new Sums();
	const [before, after]: [Row[], Columns[]] = [[], []];
	for (const { id, stored, whose, rows, ledger } of changed) {
		for (const row of rows.usage_ledger ?? []) {
			before.push(row);
			sums.add(row, stored ?? whose, negated(amountsFrom(row)));
		}
		for (const one of ledger.rows) {
			const row = columnsOf("usage_ledger", { conversationId: id, ...one });
			after.push(row);
			sums.add(row, whose, one);
		}
	}
	await replace(session, "usage_ledger", before, after);
	await replace(session, "usage_days", before.map(dayOf), after.map(dayOf));
	await replace(
		session,
		"untimed_calls",
		changed.flatMap(({ rows }) => rows.untimed_calls ?? []),
		changed.flatMap(({ id, ledger }) =>
			ledger.untimed.map(({ position, ...call }) =>
				columnsOf("untimed_calls", { conversationId: id, position: BigInt(position), ...call }),
			),
		),
	);
	await session.add("usage_sums", sums.all());
}

/** Writes the rows that differ from those before, and removes those that are none any more. */
async function replace(
	session: Session,
	table: TableName,
	before: readonly Row[],
	after: readonly Columns[],
): Promise<void> {
	const { key } = tableOf(table);
	const byKey = <Of extends Row>(rows: readonly Of[]) =>
		new Map(rows.map((row) => [JSON.stringify(key.map((name) => String(row[name]))), row]));
	const [known, present] = [byKey(before), byKey(after)];
	const removed = [...known].flatMap(([text, row]) => (present.has(text) ? [] : [someOf(row, key)]));
	await session.remove(table, removed);
	await session.write(
		table,
		[...present].map(([text, row]) => ({ before: known.get(text), after: row })),
	);
}

function isOfSame(a: Whose, b: Whose): boolean {
	return a.sender === b.sender && a.owner === b.owner;
}

/** Returns the row of a conversation if it differs from the stored one. */
function stateColumns({ id, stored, whose, ledger }: State): readonly Columns[] {
	const text = ledger.format();
	if (stored !== undefined && stored.ledger === text && isOfSame(stored, whose)) return [];
	const began = ledger.lifeBeganAt;
	return [
		{
			...{ conversation_id: id, sender: whose.sender, owner: whose.owner },
			...{ life_began_at: began === null ? null : BigInt(began), is_kept: false, ledger: text },
		},
	];
}

/** Returns the row of usage_days for a row of the ledger. */
function dayOf(row: Row): Columns {
	return { day: periodStart(bigint(row.quarter), DAY) / DAY, ...someOf(row, ["conversation_id", ...NAMES]) };
}

function someOf(row: Row, names: readonly string[]): Columns {
	return columnsFrom(Object.fromEntries(names.map((name) => [name, row[name]])));
}

/** Adds up how the sums over conversations change. */
class Sums {
	readonly #sums = new Map<string, { readonly key: Columns; readonly amounts: Amounts }>();

	/** @param row of the ledger */
	add(row: Row, { sender, owner }: Whose, amounts: Amounts): void {
		for (const length of PERIODS) {
			const start = periodStart(bigint(row.quarter), length);
			const key = { length, start, ...someOf(row, NAMES), sender, owner };
			const text = JSON.stringify(Object.values(key).map(String));
			const known = this.#sums.get(text)?.amounts;
			this.#sums.set(text, { key, amounts: known === undefined ? amounts : addAmounts(known, amounts) });
		}
	}

	/** Returns the rows to add, in the order of their keys. */
	all(): Columns[] {
		return [...this.#sums]
			.filter(([, { amounts }]) => AMOUNTS.some((name) => amounts[name] !== 0n))
			.sort(([a], [b]) => (a < b ? -1 : 1))
			.map(([, { key, amounts }]) => ({ ...key, ...amountColumns(amounts) }));
	}
}
