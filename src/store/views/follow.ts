import { setTimeout as delay } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { ServiceError } from "../../errors.ts";
import { quarterOf } from "../../usage/ledger.ts";
import { microsecondsOf } from "../condition.ts";
import type { StoredEvent, StoredUpdate, UpdateTimes } from "../entries.ts";
import { comparableTime } from "../ordering.ts";
import type { LogTable, NewestSequences } from "../sequence-log.ts";
import { readNewest, type Session } from "../session.ts";
import { bigint, blob, boolean, integer, max, nullable, type Row, text } from "../values.ts";

/** The names of the views that follow the logs. Each has its position in the table `views`. */
export type ViewName = "conversations" | "usage";

/** The entries of both logs up to which a view has followed. */
export type ViewPosition = NewestSequences;

/** The position of a view that has followed nothing. */
export const NOTHING: ViewPosition = { updates: 0n, events: 0n };

/**
 * How far the views follow: through all entries, at least to a position; or only through those that were there when the present
 * round began. In a round each conversation is derived once, although it may change meanwhile. A read needs all entries: then the
 * conversations in the views are those of one moment.
 */
export type FollowGoal = ViewPosition | "round";

/** Returns the further one of two goals. A position is further than a round. */
export function furtherGoal(a: FollowGoal, b: FollowGoal): FollowGoal {
	if (a === "round" || b === "round") return a === "round" ? b : a;
	return latest(a, b);
}

export function latest(a: ViewPosition, b: ViewPosition): ViewPosition {
	return { updates: max(a.updates, b.updates), events: max(a.events, b.events) };
}

/** A view that has not followed up to the newest entries. */
export interface Behind extends ViewPosition {
	readonly view: ViewName;
}

/** The entries of a conversation that the views follow. */
export interface Entries {
	/**
	 * Updates, in the order of the log: of the current ones that follow each other in a life and a quarter of an hour the last,
	 * whose record has what the others had, and each that was not current.
	 */
	readonly updates: FollowedUpdate[];
	/** The events that show responses of models, in the order of the log. Times are microseconds of Unix time. */
	readonly responses: { readonly responseId: string; readonly at: number }[];
	hasEvents: boolean;
}

interface FollowedUpdate {
	readonly sequence: bigint;
	/** The life and the quarter of an hour of a current update; undefined of another one. */
	readonly period: string | undefined;
}

/**
 * Milliseconds without an append after which the views follow, and the most after the first append that they have not followed.
 * A conversation that changes often is derived once in this time.
 */
const UNREAD = { quiet: 250, most: 8_000 };
const READ = { quiet: 50, most: 50 };
/** Milliseconds after a read that waited for the views in which further ones are expected. */
const READ_FOR = 10_000;
/** Number of conversations that wait to be derived from which on the views follow at once, so that the next read waits less. */
const MANY_WAITING = 2_000;
/** Milliseconds between two steps while appends arrive, so that an append waits for one step at most. */
const PAUSE = 4;

/** Lets the views follow the logs although no read waits for them: soon while they are read, so that reads wait less. */
export class FollowTimer {
	#readAt = Number.NEGATIVE_INFINITY;
	#firstAt = 0;
	#timer: NodeJS.Timeout | undefined;

	/** Says that a read waits for the views. */
	onRead(): void {
		this.#readAt = performance.now();
	}

	/**
	 * Calls `start` some time after an append.
	 *
	 * @param waiting number of conversations that wait to be derived, as far as it is known
	 */
	onAppend(start: () => void, waiting = 0): void {
		const now = performance.now();
		const { quiet, most } = this.#isSoon(waiting) ? READ : UNREAD;
		if (this.#timer === undefined) {
			this.#firstAt = now;
			this.#timer = setTimeout(() => {
				this.#timer = undefined;
				start();
			}, quiet).unref();
		} else if (now - this.#firstAt < most - quiet) this.#timer.refresh();
	}

	/** Returns the milliseconds between two steps while appends arrive: 0 while the views are read, or many conversations wait. */
	pause(waiting: number): number {
		return this.#isSoon(waiting) ? 0 : PAUSE;
	}

	#isSoon(waiting: number): boolean {
		return waiting >= MANY_WAITING || performance.now() - this.#readAt < READ_FOR;
	}

	/** Starts nothing any more. */
	stop(): void {
		clearTimeout(this.#timer);
	}
}

/** Maximum number of entries of each log that are read together. */
const MAX_ENTRIES = 250;
/** Maximum number of entries of the next round that are kept in memory. Further ones are read from the logs later. */
const MAX_WAITING = 100_000;

/** Entries that were appended together, in the order of the logs. */
export interface AppendedEntries {
	readonly updates: readonly (EntryOf & UpdateOfPeriod)[];
	readonly events: readonly (EntryOf & {
		readonly event: { readonly llmResponseId?: string | undefined; readonly happenedAt: bigint };
	})[];
}

type EntryOf = Pick<StoredEvent, "conversationId" | "sequence">;
type UpdateOfPeriod = Pick<StoredUpdate, "sequence" | "current" | "origin" | "receivedAt"> & {
	readonly times: UpdateTimes;
};

/**
 * Conversations with entries that the views have not followed, which wait to be derived. A conversation with several entries is
 * derived once in a round. It holds while no other process moves the views.
 */
export class WaitingConversations {
	/** Those of the present round. */
	#entries = new Map<string, Entries>();
	/** Up to where the entries of the round are known. */
	#roundEnd = NOTHING;
	/** Whether no entry came before the round that was not known when it began. */
	#isWhole = false;
	/** Those of the next round: their entries became known after the round had begun. */
	#later = new Map<string, Entries>();
	/** Number of entries that became known after the round had begun. */
	#laterCount = 0;
	/** The position of the views after which entries are known; undefined before the first step. */
	#position: ViewPosition | undefined;
	/** Up to where entries are known: read from the logs, or told by {@link append}. */
	#read = NOTHING;

	/** Forgets all, so that the entries after a position of the views are read again. */
	restart(position?: ViewPosition): void {
		this.#entries.clear();
		this.#later.clear();
		this.#laterCount = 0;
		this.#position = position;
		this.#read = position ?? NOTHING;
	}

	/**
	 * Reads further entries after the position of the views.
	 *
	 * @returns whether there are more
	 */
	async read(session: Session, position: ViewPosition): Promise<boolean> {
		const { updates, events } = position;
		if (updates !== this.#position?.updates || events !== this.#position.events) this.restart(position);
		if (this.#laterCount >= MAX_WAITING) return true;
		// What is appended after this is followed by later steps.
		const newest = (await session.settled()) ?? (await readNewest(session));
		const hasMore = { updates: false, events: false };
		for (const log of ["updates", "events"] as const) {
			const rows = await readRows(session, log, this.#read[log], newest[log]);
			for (const row of rows) addRow(this.#entriesOf(text(row.conversation_id)), log, row);
			hasMore[log] = rows.length === MAX_ENTRIES;
			const last = hasMore[log] ? bigint(rows.at(-1)?.sequence) : newest[log];
			if (last > this.#read[log]) this.#read = { ...this.#read, [log]: last };
			this.#laterCount += rows.length;
		}
		return hasMore.updates || hasMore.events;
	}

	/** Adds entries that were appended, if all before them are known. Others are read later. */
	append({ updates, events }: AppendedEntries): void {
		if (this.#position === undefined || this.#laterCount >= MAX_WAITING) return;
		if (updates[0]?.sequence === this.#read.updates + 1n) {
			for (const update of updates) addUpdate(this.#entriesOf(update.conversationId), update);
			this.#advance("updates", updates);
		}
		if (events[0]?.sequence === this.#read.events + 1n) {
			for (const { conversationId, event } of events)
				addEvent(this.#entriesOf(conversationId), event.llmResponseId, event.happenedAt);
			this.#advance("events", events);
		}
	}

	/** Returns the entries of a conversation: those of the round if it waits in that, so that it is not derived twice. */
	#entriesOf(conversationId: string): Entries {
		return this.#entries.get(conversationId) ?? entriesOf(this.#later, conversationId);
	}

	#advance(log: LogTable, entries: readonly EntryOf[]): void {
		this.#read = { ...this.#read, [log]: entries.at(-1)?.sequence ?? this.#read[log] };
		this.#laterCount += entries.length;
	}

	/** Number of conversations with entries that are known and not followed; one that is in two rounds counts twice. */
	get size(): number {
		return this.#entries.size + this.#later.size;
	}

	/**
	 * Takes some conversations of the round, of each at most {@link MAX_ENTRIES} updates: a step reads them all. Begins a round if
	 * the last one is over.
	 *
	 * @param hasMore what {@link read} returned
	 */
	take(number: number, hasMore: boolean): ReadonlyMap<string, Entries> {
		if (this.#entries.size === 0) {
			[this.#entries, this.#later] = [this.#later, this.#entries];
			this.#roundEnd = this.#read;
			this.#isWhole = !hasMore;
			this.#laterCount = 0;
		}
		const taken = new Map([...this.#entries.entries().take(number)]);
		for (const [id, { updates }] of taken) {
			this.#entries.delete(id);
			const rest = updates.splice(MAX_ENTRIES);
			if (rest.length > 0) this.#entries.set(id, { updates: rest, responses: [], hasEvents: false });
		}
		return taken;
	}

	/** Up to where all entries are followed after a round; undefined in a round. */
	get followed(): ViewPosition | undefined {
		if (this.#entries.size > 0) return undefined;
		return this.#later.size > 0 ? this.#roundEnd : this.#read;
	}

	/** Whether the round is over, and had all entries that came before it. */
	get isRoundOver(): boolean {
		return this.#entries.size === 0 && this.#isWhole;
	}

	/** Says that the views have moved to {@link followed}, or further when nothing waits. */
	moved(to: ViewPosition): void {
		this.#position = to;
		this.#read = latest(this.#read, to);
	}
}

/**
 * Reads the entries of conversations that the views have not followed.
 *
 * @param position that of the views
 */
export async function readEntries(
	session: Session,
	position: ViewPosition,
	conversationIds: readonly string[],
): Promise<ReadonlyMap<string, Entries>> {
	const entries = new Map<string, Entries>();
	for (const log of ["updates", "events"] as const)
		for (const row of await readRows(session, log, position[log], undefined, conversationIds))
			addRow(entriesOf(entries, text(row.conversation_id)), log, row);
	return entries;
}

/**
 * @param last sequence of the last entry; undefined for no limit
 * @param ids of the only conversations; left out for all, then at most {@link MAX_ENTRIES} are read
 */
async function readRows(
	{ dialect, all, isIn }: Session,
	log: LogTable,
	after: bigint,
	last: bigint | undefined,
	ids?: readonly string[],
): Promise<readonly Row[]> {
	if (last !== undefined && last <= after) return [];
	const columns =
		log === "updates"
			? "e.current, e.origin, e.received_at, e.summary, e.activity"
			: "e.llm_response_id, e.happened_at";
	return await all(
		`SELECT e.sequence, e.conversation_id, ${columns} FROM ${dialect.schema}${log} e
		WHERE e.sequence > ? ${last === undefined ? "" : "AND e.sequence <= ?"}
			${ids === undefined ? "" : `AND ${isIn("e.conversation_id")}`}
		ORDER BY e.sequence ${ids === undefined ? `LIMIT ${MAX_ENTRIES}` : ""}`,
		...[after, ...(last === undefined ? [] : [last]), ...(ids === undefined ? [] : [ids])],
	);
}

function addRow(entries: Entries, log: LogTable, row: Row): void {
	if (log === "updates") addUpdate(entries, updateFrom(row));
	else addEvent(entries, nullable(text, row.llm_response_id), bigint(row.happened_at));
}

/** Reads a row of updates, also what tells the time of the update. */
export function updateFrom(row: Row): UpdateOfPeriod & { readonly summary: ConversationSummary } {
	const summary = fromBinary(ConversationSummarySchema, blob(row.summary));
	const { lastActivityAt } = fromBinary(ConversationSummarySchema, nullable(blob, row.activity) ?? new Uint8Array());
	return {
		sequence: bigint(row.sequence),
		current: boolean(row.current),
		origin: integer(row.origin),
		receivedAt: bigint(row.received_at),
		summary,
		times: {
			createdAt: microsecondsOf(summary.createdAt),
			updatedAt: microsecondsOf(summary.updatedAt),
			lastActivityAt: microsecondsOf(lastActivityAt),
		},
	};
}

function addUpdate({ updates }: Entries, update: UpdateOfPeriod): void {
	const { sequence, current, times } = update;
	const period = current ? `${quarterOf(timeOf(update))} ${times.createdAt}` : undefined;
	const before = current ? updates.findLastIndex((one) => one.period !== undefined) : -1;
	if (before >= 0 && updates[before]?.period === period) updates.splice(before, 1);
	updates.push({ sequence, period });
}

/** Returns the time of an update in microseconds of Unix time. Events leave `updated_at` as it is. */
export function timeOf({ origin, receivedAt, times }: UpdateOfPeriod): bigint {
	const time = origin === UpdateOrigin.EVENTS ? times.lastActivityAt : times.updatedAt;
	return comparableTime(time, receivedAt) ?? receivedAt;
}

function entriesOf(entries: Map<string, Entries>, conversationId: string): Entries {
	return entries.getOrInsertComputed(conversationId, () => ({ updates: [], responses: [], hasEvents: false }));
}

function addEvent(entries: Entries, responseId: string | undefined, happenedAt: bigint): void {
	entries.hasEvents = true;
	if (responseId !== undefined) entries.responses.push({ responseId, at: Number(happenedAt) });
}

/** Returns the position of a view, and keeps other processes from following it in the meantime. */
export async function lockView({ dialect, all }: Session, name: ViewName): Promise<ViewPosition> {
	const [row] = await all(
		`SELECT updates, events FROM ${dialect.schema}views WHERE name = ? ${dialect.forUpdate}`,
		name,
	);
	return { updates: bigint(row?.updates), events: bigint(row?.events) };
}

/** Sets the position of a view, which is locked. */
export async function moveView({ dialect, all }: Session, name: ViewName, to: ViewPosition): Promise<void> {
	await all(`UPDATE ${dialect.schema}views SET updates = ?, events = ? WHERE name = ?`, to.updates, to.events, name);
}

/** Notes that conversations change without an entry in a log, so that the views derive their rows. */
export async function markChanged({ insert }: Session, conversationIds: readonly string[]): Promise<void> {
	// In the same order in all transactions, so that none waits for another one that waits for it.
	const rows = conversationIds.toSorted().map((id) => ({ conversation_id: id }));
	await insert("changed_conversations", rows, "NOTHING");
}

/** Milliseconds that a read waits for its view. */
const MAX_WAIT = 5_000;

/** A read of a view. `isFollowed` says that the view has what was accepted before the read was asked for. */
export interface ViewQuery<Query> {
	readonly query: Query;
	readonly isFollowed: boolean;
}

/** How far a view is behind the logs. */
export interface ViewLag {
	readonly name: string;
	/**
	 * When the oldest entry was received that the view has not followed, in microseconds since the Unix epoch; undefined when
	 * there is none.
	 */
	readonly since: bigint | undefined;
}

/** Returns how far all views are behind the logs. */
export async function listViews({ all, dialect: { schema } }: Session): Promise<ViewLag[]> {
	const first = (log: LogTable) =>
		`(SELECT e.received_at FROM ${schema}${log} e WHERE e.sequence > v.${log} ORDER BY e.sequence LIMIT 1)`;
	const rows = await all(
		`SELECT v.name, ${first("updates")} AS first_update, ${first("events")} AS first_event FROM ${schema}views v
		ORDER BY v.name`,
	);
	return rows.map(({ name, first_update, first_event }) => {
		const [update, event] = [nullable(bigint, first_update), nullable(bigint, first_event)];
		const since = update !== undefined && event !== undefined && event < update ? event : (update ?? event);
		return { name: text(name), since };
	});
}

/** Returns the newest entries if one of the views has not followed up to them; otherwise undefined. */
async function newestIfBehind(
	{ all, dialect: { schema, newest } }: Session,
	views: readonly ViewName[],
): Promise<Behind | undefined> {
	const rows = await all(
		`SELECT v.name, v.updates, v.events, ${newest.updates} AS newest_update, ${newest.events} AS newest_event,
			EXISTS (SELECT 1 FROM ${schema}changed_conversations) AS has_changed
		FROM ${schema}views v`,
	);
	for (const view of views) {
		const row = rows.find(({ name }) => name === view);
		const found = { view, updates: bigint(row?.newest_update), events: bigint(row?.newest_event) };
		if (found.updates > bigint(row?.updates) || found.events > bigint(row?.events) || boolean(row?.has_changed))
			return found;
	}
	return undefined;
}

/** The result of such a read; or the newest entries, if the view has not followed up to them. */
export type ViewAnswer<Result> = { readonly result: Result } | { readonly behind: Behind };

/** Returns the operation that reads views, unless one of them has not followed up to the newest entries. */
export function ofViews<Query, Result>(
	read: (session: Session, query: Query) => Promise<Result>,
	...views: readonly ViewName[]
): (session: Session, query: ViewQuery<Query>) => Promise<ViewAnswer<Result>> {
	return async (session, { query, isFollowed }) => {
		const behind = isFollowed ? undefined : await newestIfBehind(session, views);
		if (behind !== undefined) return { behind };
		await session.settled();
		return { result: await read(session, query) };
	};
}

/**
 * Reads a view when it has everything that was accepted before.
 *
 * @param follow lets the view follow the logs up to some entries
 * @throws {ServiceError} `unavailable` when the view does not follow in time
 */
export async function readView<Query, Result>(
	query: Query,
	read: (query: ViewQuery<Query>) => Promise<ViewAnswer<Result>>,
	follow: (through: ViewPosition) => Promise<void>,
): Promise<Result> {
	const first = await read({ query, isFollowed: false });
	if ("result" in first) return first.result;
	await inTime(first.behind.view, follow(first.behind));
	const second = await read({ query, isFollowed: true });
	if ("result" in second) return second.result;
	throw new Error("a view that has followed is behind");
}

async function inTime(view: ViewName, following: Promise<void>): Promise<void> {
	const over = new AbortController();
	const late = delay(MAX_WAIT, undefined, { signal: over.signal, ref: false }).then(() => {
		throw new ServiceError("unavailable", `the view of ${view} is behind the log; try again`);
	});
	try {
		await Promise.race([following, late]);
	} finally {
		late.catch(() => undefined);
		over.abort();
	}
}
