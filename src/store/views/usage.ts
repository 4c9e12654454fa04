import { randomUUID } from "node:crypto";
import { fromBinary, fromJson, type JsonValue } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { ConversationExecutionStatus, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { type ConversationStats, ConversationStatsSchema } from "../../../gen/conversations/v1/stats_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { toMicroseconds } from "../../record/json/scalars.ts";
import { decodeDelta, readMembers } from "../../record/record-delta.ts";
import {
	AMOUNTS,
	type Amounts,
	addAmounts,
	addEvent,
	addLastRecord,
	addStats,
	callIds,
	type EarlierRow,
	formatSeen,
	negated,
	nothingSeen,
	parseSeen,
	rowsOf,
	type Seen,
	type SourceCalls,
} from "../../usage/ledger.ts";
import { nameOf } from "../../usage/names.ts";
import { microsecondsOf } from "../condition.ts";
import { comparableTime, MAX_CLOCK_SKEW } from "../ordering.ts";
import { type RecordColumn, unpackRecord } from "../record-column.ts";
import {
	AMOUNT_COLUMNS,
	amountColumns,
	amountsFrom,
	ledgerColumns,
	PERIODS,
	packedColumnsFrom,
	periodStart,
} from "../rows.ts";
import type { Change, Columns, Session } from "../session.ts";
import { EARLIER, type EarlierUsage } from "../stored-rows.ts";
import { type TableName, tableOf } from "../tables.ts";
import { bigint, blob, boolean, integer, nullable, type Row, text } from "../values.ts";
import { columnValue } from "./conversations.ts";
import { type FollowedAhead, lockView, moveView, nextEntries, type ViewPosition } from "./follow.ts";

/**
 * The view of usage: what the calls of each conversation cost, with sums over conversations. What records and events show is
 * kept for each conversation as one text (see usage/ledger.ts), from which its rows follow; a change of it writes the rows
 * that differ, and adds the difference to the sums. To see an entry again changes nothing.
 *
 * When entries of a conversation are removed from a log, its text is kept from then on, also when the view is reset.
 */

const LEDGER_KEY = ["quarter", "model", "usage_id", "agent_kind"] as const;
/** Length of a day in quarters of an hour. */
const DAY = 96n;

function tablesOf({ dialect: { engine } }: Session) {
	return {
		conversations: tableOf(engine, "usage_conversations"),
		ledger: tableOf(engine, "usage_ledger"),
		sums: tableOf(engine, "usage_sums"),
		days: tableOf(engine, "usage_days"),
	};
}

/** Kind of the events that report members of the record. */
const STATE_UPDATE = "ConversationStateUpdateEvent";
/** Maximum size of records and of texts of events that are read together. */
const MAX_TOGETHER = 32 * 1024;
const { stats: STATS, createdAt: CREATED_AT, forkedFromConversationId: FORKED_FROM } = ConversationInfoSchema.field;
const MEMBERS = new Set([STATS, CREATED_AT, FORKED_FROM].map(({ number }) => number));

/** Entries after the first position, up to the second one. */
interface EntryRange {
	readonly after: ViewPosition;
	readonly through: ViewPosition | undefined;
}

/** What is stored of a conversation. */
interface State {
	/** Id of its row; undefined if there is none. */
	readonly key: string | bigint | undefined;
	readonly seen: Seen;
	/** Texts of `nameOf`, empty without one. */
	readonly sender: string;
	readonly owner: string;
	/** The conversation of which it is a fork. */
	readonly source: string | undefined;
	/** The columns as they are stored. */
	readonly stored:
		| ({ readonly [column in "sender" | "owner" | "ledger"]: string } & { readonly source: string | null })
		| undefined;
	readonly rows: readonly Row[];
}

/**
 * Does a step of the view, up to a bounded number of conversations.
 *
 * @param through when the view has followed all entries, its position becomes at least this one
 * @param unreadable conversations that stay as they are, because pages of the database are damaged
 * @param marked conversations that changed without an entry in a log
 * @param ahead what the steps before have followed
 * @returns the position, and whether there may be more to do
 */
export async function followUsage(
	session: Session,
	through: ViewPosition,
	unreadable: ReadonlySet<string>,
	marked: readonly string[],
	ahead: FollowedAhead,
): Promise<ViewPosition & { readonly hasMore: boolean }> {
	const next = await nextEntries(session, "usage", through, unreadable.size > 0, ahead);
	const { conversations, before, after, hasMore } = next;
	const ids = [...conversations.union(new Set(marked))].filter((id) => !unreadable.has(id));
	await derive(session, ids, { range: { after: before, through: next.through } });
	if (after.updates !== before.updates || after.events !== before.events) await moveView(session, "usage", after);
	return { ...after, hasMore };
}

/** Reads what the next step would read of a conversation. Throws when pages are damaged. */
export async function readUsageEntries(session: Session, conversationId: string): Promise<void> {
	const after = await lockView(session, "usage");
	await seeEntries(session, new Map([[conversationId, nothingSeen()]]), { after, through: undefined });
	await seeHeads(session, new Map([[conversationId, nothingSeen()]]));
}

/** Counts what the view has not followed of some conversations, before entries of them are removed. Locks the view. */
export async function settleUsage(session: Session, conversationIds: readonly string[]): Promise<void> {
	const after = await lockView(session, "usage");
	await derive(session, conversationIds, { range: { after, through: undefined }, onlyNew: true });
}

/** As {@link settleUsage}; and what was seen of the conversations and of their forks is kept when the view is reset. */
export async function keepUsage(session: Session, conversationIds: readonly string[]): Promise<void> {
	await settleUsage(session, conversationIds);
	const { schema, usageId } = session.dialect;
	for (const column of [usageId, "source_id"])
		await session.all(
			`UPDATE ${schema}usage_conversations SET is_kept = TRUE WHERE ${session.isIn(column)}`,
			conversationIds,
		);
}

/** Removes what was seen of conversations that were removed and had no usage. */
export async function removeUnused({ dialect, all, isIn }: Session, conversationIds: readonly string[]): Promise<void> {
	const { schema, usageId } = dialect;
	await all(
		`DELETE FROM ${schema}usage_conversations AS k WHERE ${isIn(`k.${usageId}`)}
			AND NOT EXISTS (SELECT 1 FROM ${schema}usage_ledger l WHERE l.conversation = k.id)
			AND NOT EXISTS (SELECT 1 FROM ${schema}heads h WHERE h.conversation_id = k.${usageId})
			AND NOT EXISTS (SELECT 1 FROM ${schema}activities a WHERE a.conversation_id = k.${usageId})`,
		conversationIds,
	);
}

/** Makes the usage of a conversation that was erased, and settled before, that of nobody. */
export async function forgetUsage(session: Session, conversationId: string): Promise<void> {
	const { dialect, all, isIn } = session;
	const { engine, schema, usageId, usageReferences } = dialect;
	await removeUnused(session, [conversationId]);
	await all(`UPDATE ${schema}usage_conversations SET source_id = NULL, is_kept = TRUE WHERE ${isIn("source_id")}`, [
		conversationId,
	]);
	const erasedId = randomUUID();
	// With Citus a row with another id is on another server, so it cannot be changed in its place.
	const move = async (name: TableName, column: string, change: Columns = {}) => {
		const table = tableOf(engine, name);
		const changed = session.stored(table, { [column]: erasedId, ...change });
		const rows = await all(`DELETE FROM ${schema}${name} WHERE ${isIn(column)} RETURNING *`, [conversationId]);
		const moved = rows.map((row) => {
			const columns = Object.entries(row).map(([key, value]) => [key, columnValue(value)]);
			return { before: undefined, after: { ...Object.fromEntries(columns), ...changed } };
		});
		await session.write(table, moved);
	};
	for (const table of usageReferences) await move(table, "conversation");
	await move("usage_conversations", usageId, { source_id: null, is_kept: true, ledger: "" });
}

/** Gives the usage of conversations an owner. Locks the view. */
export async function assignUsage(session: Session, conversationIds: readonly string[], owner: string): Promise<void> {
	await lockView(session, "usage");
	await derive(session, conversationIds, { owner });
}

/**
 * Adopts the usage of an import that earlier versions counted. That of conversations which are still stored follows from what
 * is stored, that of removed and erased ones stays. Then the view follows both logs from their beginning.
 */
export async function adoptEarlierUsage(session: Session): Promise<void> {
	await lockView(session, "usage");
	const { schema, usageId } = session.dialect;
	const rows = await session.all(
		`SELECT k.id AS key, k.${usageId} AS conversation_id, k.sender, k.owner, k.ledger,
			EXISTS (SELECT 1 FROM ${schema}heads h WHERE h.conversation_id = k.${usageId})
				OR EXISTS (SELECT 1 FROM ${schema}activities a WHERE a.conversation_id = k.${usageId}) AS is_stored
		FROM ${schema}usage_conversations k`,
	);
	for (const row of rows) {
		const ledger = session.readText(row.ledger);
		if (!ledger.startsWith(EARLIER)) continue;
		const id = text(row.conversation_id);
		if (boolean(row.is_stored)) {
			await session.all(`DELETE FROM ${schema}usage_conversations WHERE ${session.isIn(usageId)}`, [id]);
			continue;
		}
		const { earlier }: EarlierUsage = JSON.parse(ledger);
		const counted = earlier.rows.map((one): EarlierRow => {
			const amounts = AMOUNTS.map((name) => one[name]);
			return [one.usageId, one.model, one.agentKind, one.quarter, amounts];
		});
		const whose = { sender: session.readText(row.sender), owner: session.readText(row.owner), source: undefined };
		const state = { key: keyFrom(row.key), seen: nothingSeen(counted), ...whose, stored: undefined, rows: [] };
		await writeStates(session, new Map([[id, state]]), () => undefined);
		if (earlier.state.ledger === "")
			await session.all(`UPDATE ${schema}usage_conversations SET ledger = '' WHERE ${session.isIn(usageId)}`, [id]);
	}
	await resetUsage(session);
}

/** Removes all that follows from the logs, so that the view follows both from their beginning. */
export async function resetUsage(session: Session): Promise<void> {
	await lockView(session, "usage");
	const { schema, usageId, sum } = session.dialect;
	const kept = `SELECT id FROM ${schema}usage_conversations WHERE is_kept`;
	await session.all(`DELETE FROM ${schema}usage_ledger WHERE conversation NOT IN (${kept})`);
	for (const [table, test] of [
		["usage_conversations", "NOT is_kept"],
		["usage_sums", "TRUE"],
		["usage_days", "TRUE"],
	])
		await session.all(`DELETE FROM ${schema}${table} WHERE ${test}`);
	const start = (length: bigint) => `l.quarter - (l.quarter % ${length} + ${length}) % ${length}`;
	for (const length of PERIODS)
		await session.all(
			`INSERT INTO ${schema}usage_sums (${Object.keys(tablesOf(session).sums.columns).join()})
			SELECT ${length}, ${start(length)}, l.model, l.usage_id, l.agent_kind, k.sender, k.owner,
				${AMOUNT_COLUMNS.map((name) => sum(`l.${name}`)).join()}
			FROM ${schema}usage_ledger l JOIN ${schema}usage_conversations k ON k.id = l.conversation
			GROUP BY 1, 2, 3, 4, 5, 6, 7`,
		);
	await session.all(
		`INSERT INTO ${schema}usage_days (day, model, conversation, usage_id, agent_kind)
		SELECT DISTINCT (${start(96n)}) / 96, l.model, l.conversation, l.usage_id, l.agent_kind FROM ${schema}usage_ledger l`,
	);
	// Their rows follow from their texts again.
	await session.all(
		`INSERT INTO ${schema}changed_conversations
		SELECT ${usageId} FROM ${schema}usage_conversations WHERE is_kept AND ledger <> '' ON CONFLICT DO NOTHING`,
	);
	await moveView(session, "usage", { updates: 0n, events: 0n });
}

/**
 * Derives the rows of conversations, and of their forks if these may judge otherwise now. The view is locked.
 *
 * @param range the entries that are seen
 * @param onlyNew whether conversations without such entries stay as they are
 * @param owner of all of them; default: that of each
 */
async function derive(
	session: Session,
	conversationIds: readonly string[],
	{
		range,
		onlyNew = false,
		owner,
	}: { readonly range?: EntryRange; readonly onlyNew?: boolean; readonly owner?: string },
): Promise<void> {
	if (conversationIds.length === 0) return;
	const { dialect, isIn, readText } = session;
	const states = await readStates(session, conversationIds);
	const known = new Map([...states].map(([id, { seen }]) => [id, callsOf(seen)]));
	const seen = new Map(conversationIds.map((id) => [id, states.get(id)?.seen ?? nothingSeen()]));
	const seenEntries = range === undefined ? new Set<string>() : await seeEntries(session, seen, range);
	if (onlyNew) for (const id of conversationIds) if (!seenEntries.has(id)) seen.delete(id);
	if (seen.size === 0) return;
	const heads = await seeHeads(session, seen);
	for (const row of await session.all(
		`SELECT conversation_id, sender, owner FROM ${dialect.schema}activities WHERE ${isIn("conversation_id")}`,
		conversationIds,
	))
		if (!heads.has(text(row.conversation_id))) heads.set(text(row.conversation_id), row);
	for (const [id, own] of seen) {
		const [state, head] = [states.get(id), heads.get(id)];
		if (state === undefined && !seenEntries.has(id)) continue;
		const name = (column: "sender" | "owner") => nameOf(nullable(readText, head?.[column] ?? null) ?? "");
		states.set(id, {
			...(state ?? { key: undefined, stored: undefined, rows: [] }),
			seen: own,
			sender: head === undefined || name("sender") === "" ? (state?.sender ?? "") : name("sender"),
			owner: owner === undefined ? (head === undefined ? (state?.owner ?? "") : name("owner")) : nameOf(owner),
			source: sourceOf(session, head) ?? state?.source,
		});
	}
	const changed = conversationIds.filter((id) => {
		const state = states.get(id);
		return state !== undefined && callsOf(state.seen) !== known.get(id);
	});
	const forks = await session.all(
		`SELECT ${dialect.usageId} AS conversation_id FROM ${dialect.schema}usage_conversations WHERE ${isIn("source_id")}`,
		changed,
	);
	const others = forks.map(({ conversation_id }) => text(conversation_id)).filter((id) => !states.has(id));
	for (const [id, state] of await readStates(session, others)) states.set(id, state);
	const sources = [...states.values()].flatMap(({ source }) =>
		source === undefined || states.has(source) ? [] : [source],
	);
	const all = new Map([...(await readStates(session, [...new Set(sources)])), ...states]);
	await writeStates(session, states, (state) => {
		const source = state.source === undefined ? undefined : all.get(state.source);
		return source?.owner === state.owner ? callIds(source.seen) : undefined;
	});
}

/** Returns a number that grows when a fork may judge its calls otherwise. */
function callsOf({ times, calls }: Seen): number {
	return times.size + calls.size;
}

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;

function sourceOf({ readText }: Session, head: Row | undefined): string | undefined {
	const source = nullable(readText, head?.source_id ?? null);
	return source !== undefined && UUID.test(source) ? source : undefined;
}

/** Reads what is stored of conversations that were not erased. */
async function readStates(session: Session, conversationIds: readonly string[]): Promise<Map<string, State>> {
	const { dialect, isIn, readText } = session;
	if (conversationIds.length === 0) return new Map();
	const from = `FROM ${dialect.schema}usage_conversations k`;
	const found = await session.all(
		`SELECT k.id AS key, k.${dialect.usageId} AS conversation_id, k.sender, k.owner, k.source_id, k.ledger
		${from} WHERE ${isIn(`k.${dialect.usageId}`)} AND k.ledger <> ''`,
		conversationIds,
	);
	const rows = await session.all(
		`SELECT k.${dialect.usageId} AS conversation_id, ${Object.keys(tablesOf(session).ledger.columns).map((name) => `l.${name}`)}
		${from} JOIN ${dialect.schema}usage_ledger l ON l.conversation = k.id WHERE ${isIn(`k.${dialect.usageId}`)}`,
		conversationIds,
	);
	const byId = Map.groupBy(rows, (row) => text(row.conversation_id));
	return new Map(
		found.map((row) => {
			const id = text(row.conversation_id);
			const ledger = readText(row.ledger);
			const whose = { sender: readText(row.sender), owner: readText(row.owner) };
			const source = nullable(text, row.source_id);
			const stored = { ...whose, ledger, source: source ?? null };
			const seen = parseSeen(ledger);
			return [id, { key: keyFrom(row.key), seen, ...whose, source, stored, rows: byId.get(id) ?? [] }];
		}),
	);
}

function keyFrom(value: unknown): string | bigint {
	return typeof value === "string" ? value : bigint(value);
}

/**
 * Sees the entries of conversations.
 *
 * @returns the conversations that have some
 */
async function seeEntries(session: Session, seen: ReadonlyMap<string, Seen>, range: EntryRange): Promise<Set<string>> {
	const { dialect, isIn, readText } = session;
	const ids = [...seen.keys()];
	const found = new Set<string>();
	const select = async (log: "updates" | "events", columns: string) => {
		const { from, conversationId } = dialect.entries[log];
		const last = range.through?.[log];
		return await session.all(
			`SELECT ${conversationId} AS conversation_id, e.sequence, ${columns} FROM ${from}
			WHERE ${isIn(conversationId)} AND e.sequence > ? ${last === undefined ? "" : "AND e.sequence <= ?"} ORDER BY e.sequence`,
			ids,
			range.after[log],
			...(last === undefined ? [] : [last]),
		);
	};
	const lives = await session.all(
		`SELECT conversation_id, life_began_at FROM ${dialect.schema}heads WHERE ${isIn("conversation_id")}`,
		ids,
	);
	const present = new Map(lives.map((row) => [text(row.conversation_id), nullable(bigint, row.life_began_at)]));
	const small = (column: string, test: string) => `CASE WHEN ${test} THEN e.${column} END AS ${column}`;
	const updates = await select(
		"updates",
		`e.origin, e.received_at, e.base_sequence, e.unpacked_size, e.checksum, e.summary,
		${small("record", `e.origin <> ${UpdateOrigin.EVENTS} AND e.size <= ${MAX_TOGETHER}`)}`,
	);
	for (const row of updates) {
		const id = text(row.conversation_id);
		const own = seen.get(id);
		if (own === undefined) continue;
		found.add(id);
		const summary = fromBinary(ConversationSummarySchema, blob(row.summary));
		const isOfEvents = integer(row.origin) === UpdateOrigin.EVENTS;
		// Events change the current record, which is needed only if another life has begun since. Their summaries have its
		// `created_at`, but a time of receipt while no record was posted.
		const life = numberOf(present.get(id));
		const lifeOfEvents = numberOf(microsecondsOf(summary.createdAt));
		if (isOfEvents && (lifeOfEvents === life || !own.lives.some(({ began }) => began === lifeOfEvents))) continue;
		const read = await readStats(session, row);
		if (read === undefined) continue;
		const shown = {
			stats: read.stats,
			time: timeOfRecord(summary, bigint(row.received_at)),
			latest: latestOf(row),
			life: isOfEvents ? lifeOfEvents : numberOf(comparableTime(read.createdAt, bigint(row.received_at))),
			isFullState: false,
		};
		if (!isOfEvents) addStats(own, shown);
		if (shown.life !== undefined && shown.life !== life)
			addLastRecord(own, {
				...shown,
				...{ agentKind: summary.agentKind, isFork: read.isFork, isCurrent: false, rank: rankOf(summary, shown.time) },
			});
	}
	const events = await select(
		"events",
		`e.kind, e.happened_at, e.received_at, e.origin, e.llm_response_id, e.unpacked_size, e.checksum,
		${small("text", `e.kind = '${STATE_UPDATE}' AND length(e.text) <= ${MAX_TOGETHER}`)}`,
	);
	for (const row of events) {
		const id = text(row.conversation_id);
		const own = seen.get(id);
		if (own === undefined) continue;
		found.add(id);
		const time = Number(bigint(row.happened_at));
		const responseId = nullable(readText, row.llm_response_id);
		const isPosted = row.origin === null || integer(row.origin) === UpdateOrigin.POSTED;
		addEvent(own, { time, isPosted, ...(responseId === undefined ? {} : { responseId }) });
		if (readText(row.kind) !== STATE_UPDATE || !isPosted) continue;
		const shown = await readStateUpdate(session, row);
		const shownAt = comparableTime(bigint(row.happened_at), bigint(row.received_at)) ?? bigint(row.received_at);
		if (shown !== undefined) addStats(own, { ...shown, time: Number(shownAt), latest: latestOf(row), life: undefined });
	}
	return found;
}

/** Sees the current records of conversations. Returns their heads. */
async function seeHeads(session: Session, seen: ReadonlyMap<string, Seen>): Promise<Map<string, Row>> {
	const { dialect, isIn, all } = session;
	const rows = await all(
		`SELECT h.conversation_id, h.sequence, h.life_began_at, h.source_id, h.sender, h.owner, u.origin, u.received_at,
			u.base_sequence, u.unpacked_size, u.checksum, u.summary, u.activity,
			CASE WHEN u.size <= ${MAX_TOGETHER} THEN u.record END AS record
		FROM ${dialect.schema}heads h JOIN ${dialect.schema}updates u ON ${dialect.isCurrent("h")}
		WHERE ${isIn("h.conversation_id")}`,
		[...seen.keys()],
	);
	for (const row of rows) {
		const own = seen.get(text(row.conversation_id));
		const read = await readStats(session, row);
		if (own === undefined || read === undefined) continue;
		const summary = fromBinary(ConversationSummarySchema, blob(row.summary));
		const receivedAt = bigint(row.received_at);
		// Events leave `updated_at` as it is. The latest one is later than the record that they change.
		const activity = nullable(blob, row.activity);
		const { lastActivityAt } = fromBinary(ConversationSummarySchema, activity ?? new Uint8Array());
		const isOfEvents = integer(row.origin) === UpdateOrigin.EVENTS;
		const time = isOfEvents
			? Number(comparableTime(microsecondsOf(lastActivityAt), receivedAt) ?? receivedAt)
			: timeOfRecord(summary, receivedAt);
		const life = numberOf(nullable(bigint, row.life_began_at));
		const isFork = sourceOf(session, row) !== undefined;
		addStats(own, { stats: read.stats, time, latest: latestOf(row), life, isFullState: false });
		const last = { agentKind: summary.agentKind, isFork, isCurrent: true, rank: rankOf(summary, time) };
		addLastRecord(own, { stats: read.stats, time, life, ...last });
	}
	return new Map(rows.map((row) => [text(row.conversation_id), row]));
}

function numberOf(value: bigint | undefined): number | undefined {
	return value === undefined ? undefined : Number(value);
}

/** Returns the latest time that an entry can tell. */
function latestOf(row: Row): number {
	return Number(bigint(row.received_at) + MAX_CLOCK_SKEW);
}

function timeOfRecord({ updatedAt }: ConversationSummary, receivedAt: bigint): number {
	return Number(comparableTime(microsecondsOf(updatedAt), receivedAt) ?? receivedAt);
}

/** Orders the records of a life: one that deletes the conversation is the last. */
function rankOf({ executionStatus }: ConversationSummary, time: number): number {
	// Later than any other time.
	return executionStatus === ConversationExecutionStatus.DELETING ? time + 1e18 : time;
}

/** What a record tells. */
interface ReadStats {
	readonly stats: ConversationStats;
	readonly createdAt: bigint | undefined;
	readonly isFork: boolean;
}

/** Reads the stats of an update; undefined when its record cannot be read. It is not decoded as a whole. */
async function readStats(session: Session, row: Row): Promise<ReadStats | undefined> {
	const record = await packedOf(session, row, "updates", "record");
	const base = nullable(bigint, row.base_sequence);
	if (base === undefined) return attempt(() => statsOf(unpackRecord(record)));
	const delta = attempt(() => decodeDelta(unpackRecord(record)));
	if (delta === undefined || delta.members.has(STATS.number)) return delta && attempt(() => statsOf(delta.values));
	const whole = await packedOf(session, { sequence: base, record: null }, "updates", "record");
	return attempt(() => statsOf(unpackRecord(whole)));
}

/** Returns the result of `read`; undefined for bytes that cannot be read, which are not counted. */
function attempt<Read>(read: () => Read): Read | undefined {
	try {
		return read();
	} catch {
		return undefined;
	}
}

function statsOf(record: Uint8Array): ReadStats {
	const values = readMembers(record, MEMBERS);
	const createdAt = values.get(CREATED_AT.number);
	return {
		stats: fromBinary(ConversationStatsSchema, values.get(STATS.number) ?? new Uint8Array()),
		createdAt: createdAt && toMicroseconds(fromBinary(TimestampSchema, createdAt)),
		isFork: values.has(FORKED_FROM.number),
	};
}

/** Reads the stats that a state update reports; undefined when there are none. */
async function readStateUpdate(
	session: Session,
	row: Row,
): Promise<{ readonly stats: ConversationStats; readonly isFullState: boolean } | undefined> {
	const packed = await packedOf(session, row, "events", "text");
	return attempt(() => {
		const json = new TextDecoder().decode(unpackRecord(packed));
		// Other state updates are not parsed.
		if (!json.includes('"stats"') && !json.includes('"full_state"')) return undefined;
		const event: unknown = JSON.parse(json);
		const [key, value] = [memberOf(event, "key"), memberOf(event, "value")];
		const isFullState = key === "full_state";
		const stats = isFullState ? memberOf(value, "stats") : key === "stats" ? value : undefined;
		if (stats === undefined && !isFullState) return undefined;
		return { stats: fromJson(ConversationStatsSchema, stats ?? {}, { ignoreUnknownFields: true }), isFullState };
	});
}

function memberOf(value: unknown, name: string): JsonValue | undefined {
	return typeof value === "object" && value !== null ? Object.getOwnPropertyDescriptor(value, name)?.value : undefined;
}

/** Returns a packed record or text, which is in the row unless it is large. */
async function packedOf(
	{ dialect, all }: Session,
	row: Row,
	log: "updates" | "events",
	column: "record" | "text",
): Promise<RecordColumn> {
	if (row[column] !== null) return packedColumnsFrom(row, column);
	const [found] = await all(
		`SELECT ${column}, unpacked_size, checksum FROM ${dialect.schema}${log} WHERE sequence = ?`,
		bigint(row.sequence),
	);
	return packedColumnsFrom(found, column);
}

/** Writes states whose rows may have changed, and the rows and sums that differ. */
async function writeStates(
	session: Session,
	states: ReadonlyMap<string, State>,
	callsOfSource: (state: State) => SourceCalls | undefined,
): Promise<void> {
	const { ledger, sums: sumsTable, days } = tablesOf(session);
	const sums = new Sums(session);
	const [changes, removed, newDays, oldDays]: [Change[], Columns[], Change[], Columns[]] = [[], [], [], []];
	for (const [id, state] of states) {
		const usage = rowsOf(state.seen, callsOfSource(state));
		const conversation = await writeState(session, id, state);
		const known = new Map(state.rows.map((row) => [ledgerKey(row), row]));
		const knownDays = new Map(state.rows.map((row) => [dayKey(row), row]));
		const stillUsed = new Set<string>();
		for (const row of state.rows) sums.add(row, state.stored ?? state, negated(amountsFrom(row)));
		for (const one of usage) {
			const row = session.stored(ledger, { conversation, ...ledgerColumns(one) });
			changes.push({ before: known.get(ledgerKey(row)), after: row });
			known.delete(ledgerKey(row));
			sums.add(row, state, one);
			if (!stillUsed.has(dayKey(row)) && !knownDays.has(dayKey(row)))
				newDays.push({ before: undefined, after: { ...dayOf(row), conversation } });
			stillUsed.add(dayKey(row));
		}
		for (const row of known.values()) removed.push({ conversation, ...columnsOf(row, LEDGER_KEY) });
		for (const [key, row] of knownDays) if (!stillUsed.has(key)) oldDays.push({ ...dayOf(row), conversation });
	}
	await session.remove(ledger, removed);
	await session.write(ledger, changes);
	await session.remove(days, oldDays);
	await session.write(days, newDays);
	await session.add(sumsTable, sums.all());
}

/** Writes what was seen of a conversation. Returns the id of its row. */
async function writeState(session: Session, conversationId: string, state: State): Promise<string | bigint> {
	const { seen, sender, owner, source = null, stored, key } = state;
	const ledger = formatSeen(seen);
	const isSame =
		stored?.sender === sender && stored.owner === owner && stored.ledger === ledger && stored.source === source;
	if (isSame && key !== undefined) return key;
	const { schema, usageId } = session.dialect;
	const began = seen.lives.at(-1)?.began ?? null;
	const columns = session.stored(tablesOf(session).conversations, { sender, owner, ledger });
	const [row] = await session.all(
		`INSERT INTO ${schema}usage_conversations (${usageId}, sender, owner, source_id, life_began_at, is_kept, ledger)
		VALUES (?, ?, ?, ?, ?, FALSE, ?) ON CONFLICT (${usageId}) DO UPDATE SET sender = excluded.sender,
			owner = excluded.owner, source_id = excluded.source_id, life_began_at = excluded.life_began_at,
			ledger = excluded.ledger
		RETURNING id AS key`,
		conversationId,
		columns.sender ?? "",
		columns.owner ?? "",
		source,
		began === null ? null : BigInt(began),
		columns.ledger ?? "",
	);
	return keyFrom(row?.key);
}

function ledgerKey(row: Row): string {
	return JSON.stringify(LEDGER_KEY.map((name) => String(row[name])));
}

/** Returns the row of usage_days for a row of the ledger, without the conversation. */
function dayOf(row: Row): Columns {
	return { day: periodStart(bigint(row.quarter), DAY) / DAY, ...columnsOf(row, ["model", "usage_id", "agent_kind"]) };
}

function dayKey(row: Row): string {
	return JSON.stringify(Object.values(dayOf(row)).map(String));
}

function columnsOf(row: Row, names: readonly string[]): Columns {
	return Object.fromEntries(
		names.map((name) => [name, typeof row[name] === "bigint" ? bigint(row[name]) : text(row[name])]),
	);
}

/** Adds up how the sums over conversations change. */
class Sums {
	readonly #session: Session;
	readonly #sums = new Map<string, { readonly key: Columns; readonly amounts: Amounts }>();

	constructor(session: Session) {
		this.#session = session;
	}

	/** @param row of the ledger, in its stored form */
	add(row: Row, { sender, owner }: Pick<State, "sender" | "owner">, amounts: Amounts): void {
		const whose = this.#session.stored(tablesOf(this.#session).sums, { sender, owner });
		for (const length of PERIODS) {
			const start = periodStart(bigint(row.quarter), length);
			const key = { length, start, ...columnsOf(row, ["model", "usage_id", "agent_kind"]), ...whose };
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
