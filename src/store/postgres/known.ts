import { erasureFrom, idDigest } from "../erasure.ts";
import { gapsOf, NO_GAPS } from "../gaps.ts";
import type { GroupQuery, KnownConversation, PlanReads, PlanResults } from "../group.ts";
import { readOrUnreadable } from "../record-column.ts";
import { ACTIVITY_COLUMNS, joinedActivityFrom, recordFrom } from "../rows.ts";
import { bigint, boolean, integer, nullable, type Row, text } from "../values.ts";
import { findExplained, forksOf, forksQuery, gapsQuery } from "./gaps.ts";
import { lockConversations } from "./locks.ts";
import { decoded, knownOriginOf, ORIGIN_COLUMNS, STATE_COLUMNS, stateOf } from "./rows.ts";
import { encodeKey } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";

/** Locks the conversations of a group, and reads what its plan needs. */
export async function readKnown(
	session: Session,
	{ conversationIds, versions, events, named }: GroupQuery,
): Promise<ReadonlyMap<string, KnownConversation>> {
	const keyed = [...events, ...named].map((event) => ({ ...event, key: encodeKey(event.eventId) }));
	const [, rows = [], gaps = [], stored = [], ofForks = []] = await session.query(
		lockConversations(conversationIds),
		knownQuery(conversationIds, [...versions]),
		gapsQuery(conversationIds),
		...(keyed.length === 0 ? [] : [knownEventsQuery(keyed)]),
		...(events.length === 0 ? [] : [forksQuery(events.map(({ eventId }) => eventId))]),
	);
	const forks = forksOf(ofForks);
	const known = new Map(
		rows.map((row) => {
			const id = text(row.conversation_id);
			return [id, { ...knownOf(row), gaps: gaps.length === 0 ? NO_GAPS : gapsOf(gaps, id, decoded), forks }];
		}),
	);
	const storedKeys = new Set(stored.map((row) => `${text(row.conversation_id)} ${text(row.event_id)}`));
	for (const { conversationId, eventId, key } of keyed)
		if (storedKeys.has(`${conversationId} ${key}`)) known.get(conversationId)?.eventIds.add(eventId);
	return known;
}

/**
 * Returns the query that reads the state of conversations. Its result has one row for each, with null for missing values.
 *
 * @param versions ids of the conversations for which events of the group make a version
 */
function knownQuery(conversationIds: readonly string[], versions: readonly string[]): Query {
	return {
		name: "known_conversations",
		text: `
			SELECT k.conversation_id, c.source_id, c.parent_id, ${STATE_COLUMNS}, ${ACTIVITY_COLUMNS}, ${ORIGIN_COLUMNS},
				n.change AS newest_change, n.current AS newest_current, n.schema_version AS newest_schema_version,
				u.base_sequence, coalesce(b.size, u.size) AS base_size,
				CASE WHEN u.base_sequence IS NOT NULL THEN u.record END AS current_record,
				u.unpacked_size AS current_unpacked_size, u.checksum AS current_checksum,
				u.redaction_version AS current_redaction_version, u.schema_version AS current_schema_version,
				g.sender AS usage_sender, g.owner AS usage_owner,
				x.sequence AS erasure_sequence, x.owner AS erasure_owner, x.created_at AS erasure_created_at,
				x.erased_at AS erasure_erased_at, x.id_digest AS erasure_id_digest
			FROM unnest($1::uuid[], $3::text[]) AS k (conversation_id, id_digest)
			LEFT JOIN conversation_updates.heads c ON c.conversation_id = k.conversation_id
			LEFT JOIN conversation_updates.activities a ON a.conversation_id = k.conversation_id
			LEFT JOIN conversation_updates.updates n
				ON n.conversation_id = c.conversation_id AND n.sequence = c.newest_sequence
			LEFT JOIN conversation_updates.updates u ON u.conversation_id = c.conversation_id
				AND u.sequence = c.sequence AND c.conversation_id = ANY ($2::uuid[])
			LEFT JOIN conversation_updates.updates b
				ON b.conversation_id = u.conversation_id AND b.sequence = u.base_sequence
			LEFT JOIN conversation_updates.usage_conversations g
				ON g.id = k.conversation_id AND c.conversation_id IS NULL AND a.conversation_id IS NULL
			LEFT JOIN conversation_updates.erasures x
				ON x.id_digest = k.id_digest AND c.conversation_id IS NULL AND a.conversation_id IS NULL
		`,
		values: [conversationIds, versions, conversationIds.map(idDigest)],
	};
}

/** Returns the query that reads which events are stored, by their keys: see `encodeKey`. */
function knownEventsQuery(events: readonly { readonly conversationId: string; readonly key: string }[]): Query {
	return {
		name: "known_events",
		text: `
			SELECT e.conversation_id, e.event_id FROM conversation_updates.events e
			JOIN unnest($1::uuid[], $2::text[]) AS k (conversation_id, event_id)
				ON e.conversation_id = k.conversation_id AND e.event_id = k.event_id
		`,
		values: [events.map(({ conversationId }) => conversationId), events.map(({ key }) => key)],
	};
}

function knownOf(row: Row): Omit<KnownConversation, "gaps" | "forks"> {
	const state = stateOf(row);
	const base = nullable(bigint, row.base_sequence);
	const size = nullable(integer, row.base_size);
	return {
		state,
		activity: joinedActivityFrom(row, decoded),
		newestPosted:
			row.newest_change === null
				? undefined
				: {
						change: integer(row.newest_change),
						current: boolean(row.newest_current),
						schemaVersion: integer(row.newest_schema_version),
					},
		base: size === undefined || state === undefined ? undefined : { sequence: base ?? state.sequence, size },
		delta: base === undefined ? undefined : recordFrom(row, "current_"),
		eventIds: new Set(),
		removed:
			row.usage_owner === null ? undefined : { sender: decoded(row.usage_sender), owner: decoded(row.usage_owner) },
		origin: knownOriginOf(row),
		source: nullable(decoded, row.source_id),
		parent: nullable(decoded, row.parent_id),
		erasure: row.erasure_sequence === null ? undefined : erasureFrom(row, decoded, "erasure_"),
	};
}

/** Reads what a plan stops for: missing events, or records. */
export async function readForPlan(session: Session, { records, missing }: PlanReads): Promise<PlanResults> {
	if (missing !== undefined) return { records: new Map(), explained: await findExplained(session, missing) };
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
