import { erasureFrom, idDigest } from "../erasure.ts";
import { findExplained, gapsOf, gapsSql, NO_GAPS } from "../gaps.ts";
import type { GroupQuery, KnownConversation, PlanReads, PlanResults } from "../group.ts";
import { readOrUnreadable } from "../record-column.ts";
import { ACTIVITY_COLUMNS, activityFrom, ownershipFrom, recordFrom } from "../rows.ts";
import { bigint, boolean, integer, nullable, type Row, text } from "../values.ts";
import { decoded, encodeKey, encodeText, STATE_COLUMNS, stateOf } from "./rows.ts";
import { postgresSession } from "./session.ts";
import { lockSettled } from "./settled.ts";
import type { Query, Session } from "./transaction.ts";

/** Locks the conversations of a group, and reads what its plan needs. */
export async function readKnown(
	session: Session,
	{ conversationIds, versions, events, named }: GroupQuery,
): Promise<ReadonlyMap<string, KnownConversation>> {
	const keyed = [...events, ...named].map((event) => ({ ...event, key: encodeKey(event.eventId) }));
	const isDistributed = await session.isDistributed();
	const [heads = [], activities = [], usages = [], erasures = [], gaps = [], stored = [], ofEvents = []] =
		await lockSettled(
			session,
			conversationIds,
			...knownQueries(conversationIds, [...versions], isDistributed),
			gapsQuery(conversationIds),
			...(keyed.length === 0 ? [] : [knownEventsQuery(keyed, isDistributed)]),
			...(events.length === 0 ? [] : [gapsOfEventsQuery(events.map(({ eventId }) => eventId))]),
		);
	const forks = await forksOf(session, ofEvents);
	const [head, activity, usage] = [heads, activities, usages].map(
		(rows) => new Map(rows.map((row) => [text(row.conversation_id), row])),
	);
	const erasure = new Map(erasures.map((row) => [text(row.id_digest), row]));
	const known = new Map(
		conversationIds.map((id) => {
			const rows = {
				head: head?.get(id),
				activity: activity?.get(id),
				usage: usage?.get(id),
				erasure: erasure.get(idDigest(id)),
			};
			return [id, { ...knownOf(rows), gaps: gaps.length === 0 ? NO_GAPS : gapsOf(gaps, id, decoded), forks }];
		}),
	);
	const storedKeys = new Set(stored.map((row) => `${text(row.conversation_id)} ${text(row.event_id)}`));
	for (const { conversationId, eventId, key } of keyed)
		if (storedKeys.has(`${conversationId} ${key}`)) known.get(conversationId)?.eventIds.add(eventId);
	return known;
}

/**
 * Returns the queries that read the state of conversations. Each reads rows by the ids that it is given: Citus would read the
 * whole of a table that is joined to a list of ids. It also asks only servers that have rows of the ids if each joined table
 * has such a test, which would mislead the planner of one server.
 *
 * @param versions ids of the conversations for which events of the group make a version
 */
function knownQueries(
	conversationIds: readonly string[],
	versions: readonly string[],
	isDistributed: boolean,
): Query[] {
	const isOf = (column: string, ids: string) =>
		isDistributed ? `AND ${column}.conversation_id = ANY (${ids}::uuid[])` : "";
	return [
		{
			name: isDistributed ? "known_spread_heads" : "known_heads",
			text: `
				SELECT c.conversation_id, c.source_id, c.parent_id, ${STATE_COLUMNS}, c.sender, c.owner,
					n.change AS newest_change, n.current AS newest_current, n.schema_version AS newest_schema_version,
					u.base_sequence, coalesce(b.size, u.size) AS base_size,
					CASE WHEN u.base_sequence IS NOT NULL THEN u.record END AS current_record,
					u.unpacked_size AS current_unpacked_size, u.checksum AS current_checksum,
					u.redaction_version AS current_redaction_version, u.schema_version AS current_schema_version
				FROM conversation_updates.heads c
				LEFT JOIN conversation_updates.updates n
					ON n.conversation_id = c.conversation_id AND n.sequence = c.newest_sequence ${isOf("n", "$1")}
				LEFT JOIN conversation_updates.updates u ON u.conversation_id = c.conversation_id
					AND u.sequence = c.sequence AND c.conversation_id = ANY ($2::uuid[]) ${isOf("u", "$2")}
				LEFT JOIN conversation_updates.updates b
					ON b.conversation_id = u.conversation_id AND b.sequence = u.base_sequence ${isOf("b", "$2")}
				WHERE c.conversation_id = ANY ($1::uuid[])
			`,
			values: [conversationIds, versions],
		},
		{
			name: "known_activities",
			text: `
				SELECT a.conversation_id, ${ACTIVITY_COLUMNS}, a.sender, a.owner
				FROM conversation_updates.activities a WHERE a.conversation_id = ANY ($1::uuid[])
			`,
			values: [conversationIds],
		},
		{
			name: "known_usage",
			text: `
				SELECT id AS conversation_id, sender, owner FROM conversation_updates.usage_conversations
				WHERE id = ANY ($1::uuid[])
			`,
			values: [conversationIds],
		},
		{
			name: "known_erasures",
			text: `SELECT id_digest, sequence, owner, created_at, erased_at FROM conversation_updates.erasures WHERE id_digest = ANY ($1::text[])`,
			values: [conversationIds.map(idDigest)],
		},
	];
}

/** Rows of {@link knownQueries} of one conversation. */
interface KnownRows {
	readonly head: Row | undefined;
	readonly activity: Row | undefined;
	readonly usage: Row | undefined;
	readonly erasure: Row | undefined;
}

/** Returns the query that reads which events are stored, by their keys: see `encodeKey`. */
function knownEventsQuery(
	events: readonly { readonly conversationId: string; readonly key: string }[],
	isDistributed: boolean,
): Query {
	return {
		name: isDistributed ? "known_spread_events" : "known_events",
		text: `
			SELECT e.conversation_id, e.event_id FROM conversation_updates.events e
			JOIN unnest($1::uuid[], $2::text[]) AS k (conversation_id, event_id)
				ON e.conversation_id = k.conversation_id AND e.event_id = k.event_id
			${isDistributed ? "WHERE e.conversation_id = ANY ($1::uuid[])" : ""}
		`,
		values: [events.map(({ conversationId }) => conversationId), events.map(({ key }) => key)],
	};
}

function knownOf({ head, activity, usage, erasure }: KnownRows): Omit<KnownConversation, "gaps" | "forks"> {
	const state = head && stateOf(head);
	const base = nullable(bigint, head?.base_sequence ?? null);
	const size = nullable(integer, head?.base_size ?? null);
	// What is left of a conversation matters only while nothing else of it is stored.
	const isRemoved = head === undefined && activity === undefined;
	const owned = head ?? activity;
	return {
		state,
		activity: activity && activityFrom(activity, decoded),
		newestPosted:
			(head?.newest_change ?? null) === null
				? undefined
				: {
						change: integer(head?.newest_change),
						current: boolean(head?.newest_current),
						schemaVersion: integer(head?.newest_schema_version),
					},
		base: size === undefined || state === undefined ? undefined : { sequence: base ?? state.sequence, size },
		delta: head === undefined || base === undefined ? undefined : recordFrom(head, "current_"),
		eventIds: new Set(),
		removed:
			isRemoved && usage !== undefined ? { sender: decoded(usage.sender), owner: decoded(usage.owner) } : undefined,
		ownership: owned && ownershipFrom(owned, decoded),
		source: nullable(decoded, head?.source_id ?? null),
		parent: nullable(decoded, head?.parent_id ?? null),
		erasure: isRemoved && erasure !== undefined ? erasureFrom(erasure, decoded) : undefined,
	};
}

/** Reads what a plan stops for: missing events, or records. */
export async function readForPlan(session: Session, { records, missing }: PlanReads): Promise<PlanResults> {
	if (missing !== undefined)
		return { records: new Map(), explained: await findExplained(postgresSession(session), missing) };
	const [found = []] = await session.query(recordsQuery(records));
	return {
		records: new Map(found.map((row) => [bigint(row.sequence), readOrUnreadable(() => recordFrom(row))])),
	};
}

function recordsQuery(sequences: readonly bigint[]): Query {
	return {
		name: "stored_records",
		text: `
			SELECT sequence, record, unpacked_size, checksum, redaction_version, schema_version
			FROM conversation_updates.updates WHERE sequence = ANY ($1::bigint[])
		`,
		values: [sequences],
	};
}

/** Returns the query for the gaps of conversations: see `gapsSql`. */
function gapsQuery(conversationIds: readonly string[]): Query {
	return {
		name: "known_gaps",
		text: gapsSql("conversation_updates.", "g.conversation_id = ANY ($1::uuid[])"),
		values: [conversationIds],
	};
}

/** Returns the query that finds the gaps for events. Events of different conversations can have the same id. */
function gapsOfEventsQuery(eventIds: readonly string[]): Query {
	return {
		name: "gaps_of_events",
		text: `
			SELECT g.conversation_id, g.missing, g.after_event_id FROM conversation_updates.gaps g
			WHERE g.missing = ANY ($1::text[]) AND g.kind IN ('missing_parent', 'missing_leaf')
		`,
		values: [eventIds.map(encodeText)],
	};
}

/**
 * Returns those of the gaps whose conversations are forks, or have no record and may be forks: ids of conversations by the id of
 * the event.
 *
 * @param rows of {@link gapsOfEventsQuery}, usually none
 */
async function forksOf(
	session: Session,
	rows: readonly Readonly<Record<string, unknown>>[],
): Promise<ReadonlyMap<string, readonly string[]>> {
	const forks = new Map<string, string[]>();
	if (rows.length === 0) return forks;
	const [found = []] = await session.query({
		name: "forks",
		text: `
			SELECT conversation_id, TRUE AS is_fork FROM conversation_updates.heads
			WHERE conversation_id = ANY ($1::uuid[]) AND source_id IS NOT NULL
			UNION ALL SELECT conversation_id, FALSE FROM conversation_updates.gaps
			WHERE conversation_id = ANY ($1::uuid[]) AND kind = 'no_record'
		`,
		values: [rows.map((row) => text(row.conversation_id))],
	});
	const idsOf = (isFork: boolean) =>
		new Set(found.filter((row) => boolean(row.is_fork) === isFork).map((row) => text(row.conversation_id)));
	const [forkIds, withoutRecord] = [idsOf(true), idsOf(false)];
	for (const row of rows) {
		const id = text(row.conversation_id);
		if (!forkIds.has(id) && !(withoutRecord.has(id) && row.after_event_id === null)) continue;
		const missing = decoded(row.missing);
		forks.set(missing, [...(forks.get(missing) ?? []), id]);
	}
	return forks;
}
