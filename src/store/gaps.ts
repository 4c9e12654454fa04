import type { Session } from "./session.ts";
import { bigint, keyOf, nullable, type Row, text } from "./values.ts";
import { markChanged } from "./views/follow.ts";

/**
 * What is known to be missing of a conversation. A gap opens when a post names something that is not stored, and closes
 * when that arrives.
 */

/** See `ConversationGapKind`. */
export const gapKinds = ["missing_parent", "missing_leaf", "no_record", "refused_batch"] as const;
export type GapKind = (typeof gapKinds)[number];

/** A gap of a conversation. */
export interface Gap {
	readonly kind: GapKind;
	/** Id of the missing event, or of the refused post; empty for a missing record. */
	readonly missing: string;
	/** Id of the last event that is known to have come before the missing one. */
	readonly after: string | undefined;
	/** When the gap was noticed, in microseconds since the Unix epoch. */
	readonly since: bigint;
	/** Owner of the sender of the refused batch; undefined for none, and for other kinds. */
	readonly owner?: string | undefined;
}

/** A gap and its conversation. */
export interface GapOf extends Gap {
	readonly conversationId: string;
}

/** How many gaps a conversation has, at least one, and since when. */
export interface OpenGaps {
	readonly count: bigint;
	/** When the oldest was noticed, in microseconds since the Unix epoch. */
	readonly since: bigint;
}

/** The gaps of a conversation by {@link gapKey}. */
export type Gaps = ReadonlyMap<string, Gap>;
export const NO_GAPS: Gaps = new Map();

/** Returns what identifies a gap in its conversation. An event is missing once, whatever names it. */
export function gapKey({ kind, missing }: Pick<Gap, "kind" | "missing">): string {
	return kind === "missing_leaf" || kind === "missing_parent" ? eventKey(missing) : `${kind} ${missing}`;
}

/** Returns the key of the gap that a missing event is. */
export function eventKey(eventId: string): string {
	return `event ${eventId}`;
}

/** Returns the number of gaps and the time of the oldest; undefined without any. */
export function openGaps(gaps: Gaps | readonly Gap[]): OpenGaps | undefined {
	let since: bigint | undefined;
	let count = 0n;
	for (const gap of gaps.values()) {
		count++;
		if (since === undefined || gap.since < since) since = gap.since;
	}
	return since === undefined ? undefined : { count, since };
}

/**
 * Milliseconds after which a gap counts as lasting. Shorter ones are usual: agent servers post records and events
 * separately, events after up to 30 seconds, and try again.
 */
export const LASTING_GAP = 2 * 60_000;

/** What a group changes of the gaps of a conversation. */
export interface WrittenGaps {
	/** Gaps to remove. They are removed before the others are added. */
	readonly closed: readonly Gap[];
	readonly opened: readonly Gap[];
}

/** Returns what turns the gaps before into those after; undefined when they are the same. */
export function gapChanges(before: Gaps, after: Gaps): WrittenGaps | undefined {
	if (before === after) return undefined;
	const closed = [...before].filter(([key, gap]) => after.get(key) !== gap).map(([, gap]) => gap);
	const opened = [...after].filter(([key, gap]) => before.get(key) !== gap).map(([, gap]) => gap);
	return closed.length + opened.length === 0 ? undefined : { closed, opened };
}

/** Events that are named and not stored, for which there may be reasons that are no gaps. */
export interface MissingEvents {
	readonly conversationId: string;
	/** The conversation of which this one is a fork; undefined when it is none. */
	readonly source: string | undefined;
	readonly owner: string | undefined;
	readonly eventIds: readonly string[];
	/** The first state of the conversation, if it names a last event that is missing. */
	readonly firstState: FirstState | undefined;
}

/**
 * The state that is reported before any other event of a conversation. If another conversation of the owner has the event
 * that it names as the last one, and does not have the report, this conversation is a fork: see {@link SOURCES}.
 */
export interface FirstState {
	readonly eventId: string;
	readonly leaf: string;
}

/** Number of conversations of the owner, those with the newest updates, in which the last event of a fork is looked for. */
const SOURCES = 1_000;

/** Maximum number of forks of forks that are followed to their source. */
const MAX_FORKS = 32;

/** Parent of an event that begins a tree, in the words of the agent server. */
const ROOT = "__root__";
/** Maximum number of characters of an event's id. A longer name names none. */
const MAX_ID_LENGTH = 256;

/** Returns the id of an event that another one or a record names; undefined when it names none. */
export function namedEvent(id: unknown): string | undefined {
	if (typeof id !== "string" || id === "" || id === ROOT) return undefined;
	return id.length > 2 * MAX_ID_LENGTH || [...id].length > MAX_ID_LENGTH ? undefined : id;
}

/** Returns those of the missing events that are no gaps: see `PlanReads.explained`. */
export async function findExplained(
	session: Session,
	{ conversationId, source, owner, eventIds, firstState }: MissingEvents,
): Promise<ReadonlySet<string>> {
	const all = new Set(eventIds);
	if (await hasPrunedEvents(session, conversationId)) return all;
	const explained = new Set<string>();
	if (firstState !== undefined && (await isOfFork(session, firstState, owner))) explained.add(firstState.leaf);
	const ids = new Map(eventIds.map((id) => [keyOf(id), id]));
	const { schema } = session.dialect;
	let next = source;
	for (let forks = 0; next !== undefined && forks < MAX_FORKS; forks++) {
		const of = [next];
		const ownerIn = (columns: string, table: string) =>
			session.all(`SELECT ${columns} FROM ${schema}${table} WHERE ${session.isIn("conversation_id")}`, of);
		const [[head], [activity], isPruned, found] = await Promise.all([
			ownerIn("source_id, owner", "heads"),
			ownerIn("owner", "activities"),
			hasPrunedEvents(session, next),
			findEvents(session, of, [...ids.keys()]),
		]);
		const stored = head ?? activity;
		if (stored === undefined || nullable(text, stored.owner) !== owner || isPruned) return all;
		for (const { event_id } of found) {
			const id = ids.get(text(event_id));
			if (id !== undefined) explained.add(id);
		}
		next = nullable(text, head?.source_id ?? null);
	}
	return explained;
}

async function hasPrunedEvents({ all, isIn, dialect }: Session, conversationId: string): Promise<boolean> {
	const test = `${isIn("conversation_id")} AND log = 'events'`;
	return (await all(`SELECT 1 AS found FROM ${dialect.schema}pruned WHERE ${test}`, [conversationId])).length > 0;
}

/** Numbers of keys of a statement, because connections keep each statement prepared. */
const KEYS = [1, 8, 64, 512];

/** Returns which of the events conversations have. */
function findEvents(
	{ all, isIn, dialect: { schema } }: Session,
	conversationIds: readonly string[],
	keys: readonly string[],
): Promise<Row[]> {
	const count = KEYS.find((size) => size >= keys.length) ?? keys.length;
	const padded = Array.from({ length: count }, (_, n) => keys[n] ?? keys[0] ?? "");
	return all(
		`SELECT conversation_id, event_id FROM ${schema}events
		WHERE ${isIn("conversation_id")} AND event_id IN (${padded.map(() => "?").join()})`,
		conversationIds,
		...padded,
	);
}

/** Returns whether a state is the first one of a fork of one of the newest conversations of an owner. */
async function isOfFork(session: Session, { eventId, leaf }: FirstState, owner: string | undefined): Promise<boolean> {
	const { all } = session;
	const { schema, join } = session.dialect;
	const [isOwn, values] = owner === undefined ? ["owner IS NULL", []] : ["owner = ?", [owner]];
	// Those that the view has, and those of later updates.
	const sources = await Promise.all([
		all(
			`SELECT conversation_id FROM ${schema}conversations WHERE ${isOwn} ORDER BY sequence DESC LIMIT ${SOURCES}`,
			...values,
		),
		all(
			`SELECT h.conversation_id FROM ${schema}updates u ${join} ${schema}heads h ON h.conversation_id = u.conversation_id
			WHERE u.sequence > (SELECT updates FROM ${schema}views WHERE name = 'conversations') AND h.${isOwn}`,
			...values,
		),
	]);
	const idsOf = (rows: readonly Row[]) => new Set(rows.map(({ conversation_id }) => text(conversation_id)));
	const withLeaf = idsOf(await findEvents(session, [...idsOf(sources.flat())], [keyOf(leaf)]));
	if (withLeaf.size === 0) return false;
	const withState = idsOf(await findEvents(session, [...withLeaf], [keyOf(eventId)]));
	return withState.size < withLeaf.size;
}

export function gapColumns({ conversationId, kind, missing, after, since }: GapOf) {
	return { conversation_id: conversationId, kind, missing, after_event_id: after, since };
}

/**
 * Returns SQL that reads gaps, with the owners of refused batches.
 *
 * @param test SQL for which gaps `g`
 */
export function gapsSql(schema: string, test: string): string {
	return `
		SELECT g.conversation_id, g.kind, g.missing, g.after_event_id, g.since, r.owner AS refused_owner
		FROM ${schema}gaps g LEFT JOIN ${schema}refused_posts r
			ON r.id = CASE WHEN g.kind = 'refused_batch' THEN CAST(g.missing AS bigint) END
		WHERE ${test}
	`;
}

/** Reads the gaps of one conversation from rows of {@link gapsSql}. */
export function gapsOf(rows: readonly Row[], conversationId: string): Gaps {
	const gaps = new Map<string, Gap>();
	for (const row of rows) {
		if (row.conversation_id !== conversationId) continue;
		const gap = gapFrom(row);
		gaps.set(gapKey(gap), gap);
	}
	return gaps;
}

/** Reads a gap from its row. A row without the column `refused_owner` has no owner. */
export function gapFrom(row: Row): Gap {
	const kind = gapKinds.find((known) => known === row.kind);
	if (kind === undefined) throw new Error("a gap has an unknown kind");
	return {
		kind,
		missing: text(row.missing),
		after: nullable(text, row.after_event_id),
		since: bigint(row.since),
		owner: nullable(text, row.refused_owner ?? null),
	};
}

/** Returns the gaps of a conversation, in any order. */
export async function listGaps(
	{ all, isIn, dialect: { schema } }: Session,
	conversationId: string,
): Promise<readonly Gap[]> {
	const rows = await all(gapsSql(schema, isIn("g.conversation_id")), [conversationId]);
	return [...gapsOf(rows, conversationId).values()];
}

/**
 * Opens a gap, unless the conversation has it, whether or not anything else of the conversation is stored. The conversation
 * is locked.
 */
export async function openGap(session: Session, gap: GapOf): Promise<void> {
	await session.insert("gaps", [gapColumns(gap)], "NOTHING");
	await markChanged(session, [gap.conversationId]);
}

/** Closes a gap if the conversation has it. The conversation is locked. */
export async function closeGap(
	session: Session,
	{ conversationId, kind, missing }: Pick<GapOf, "conversationId" | "kind" | "missing">,
): Promise<void> {
	await session.remove("gaps", [{ conversation_id: conversationId, kind, missing }]);
	await markChanged(session, [conversationId]);
}

/**
 * Removes the gaps of conversations that posts opened which were received before a time: what these posts brought has been
 * pruned. That a batch was refused stays known.
 */
export async function removeOldGaps(
	session: Session,
	conversationIds: readonly string[],
	receivedBefore: bigint,
): Promise<void> {
	const rows = await session.all(
		`DELETE FROM ${session.dialect.schema}gaps
		WHERE ${session.isIn("conversation_id")} AND kind IN ('missing_parent', 'missing_leaf') AND since < ?
		RETURNING conversation_id`,
		conversationIds,
		receivedBefore,
	);
	await markChanged(session, [...new Set(rows.map(({ conversation_id }) => text(conversation_id)))]);
}
