import type { ConversationOrigin } from "../owners.ts";
import { columnOfEvent, packRecordAsync, packSecrets } from "../record-column.ts";
import type { ActivityRow } from "../stored-rows.ts";
import type { WrittenGroup } from "../written-group.ts";
import { writeGapsQueries } from "./gaps.ts";
import { PROVISIONAL, WRITE_GROUP } from "./numbered-sql.ts";
import { postsQueries } from "./senders.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query } from "./transaction.ts";
import { usageQueries } from "./usage.ts";
import { markChangedQuery } from "./views.ts";
import { activitiesQuery, Bytes, eventRow, headRow, json, updateRow } from "./written-rows.ts";

/** The committer that writes a group. */
export interface GroupWriter {
	readonly id: string;
	/** Number of the group, unique among the writer's groups. */
	readonly group: bigint;
	/** Whether to notify other processes. */
	readonly notifies: boolean;
}

/** Returns the statements that write a group in one transaction. The last one returns `first_update` and `first_event`. */
export async function groupQueries(group: WrittenGroup, writer: GroupWriter): Promise<Query[]> {
	const withEntries = new Set([...group.updates, ...group.events].map(({ conversationId }) => conversationId));
	const changed = [...group.gaps.keys(), ...group.senders.keys()].filter((id) => !withEntries.has(id));
	const moved = [...group.senders.values()].flatMap((sender) => sender.moved);
	return [
		...postsQueries(group.posts.all()),
		...(group.activities.size === 0 ? [] : [activitiesQuery(activityRows(group))]),
		...(group.usage.states.size + moved.length === 0 ? [] : usageQueries(group.usage, moved)),
		...writeGapsQueries(group.gaps),
		...(group.senders.size === 0 ? [] : [sendersQuery(group.senders)]),
		...(changed.length === 0 ? [] : [markChangedQuery(changed)]),
		// It locks the row of `positions`, so it is the last one.
		await writeQuery(group, writer),
	];
}

/** Returns the query that gives conversations a sender, in each of the tables in which they are. */
function sendersQuery(senders: WrittenGroup["senders"]): Query {
	const rows = [...senders].map(([id, { sender, usageName }]) => ({
		id,
		sender: encodeText(sender),
		usage_name: encodeText(usageName),
	}));
	return {
		text: `
			WITH r AS MATERIALIZED (
				SELECT * FROM json_to_recordset($1::json) AS r (id uuid, sender text, usage_name text)
			), usage AS (
				UPDATE conversation_updates.usage_conversations k SET sender = r.usage_name FROM r WHERE k.id = r.id
			), activities AS (
				UPDATE conversation_updates.activities a SET sender = r.sender FROM r WHERE a.conversation_id = r.id
			)
			UPDATE conversation_updates.heads c SET sender = r.sender FROM r WHERE c.conversation_id = r.id
		`,
		values: [json(rows)],
	};
}

function activityRows(group: WrittenGroup): ActivityRow[] {
	return [...group.activities].map(([id, activity]) => ({
		conversationId: id,
		origin: originOf(group, id),
		activity,
	}));
}

function originOf({ origins }: WrittenGroup, id: string): ConversationOrigin {
	const origin = origins.get(id);
	if (origin === undefined) throw new Error("the plan of a group is not complete");
	return origin;
}

async function writeQuery(group: WrittenGroup, writer: GroupWriter): Promise<Query> {
	const packed = await Promise.all(group.updates.map(({ record }) => packRecordAsync(record.bytes)));
	const bytes = new Bytes();
	const updates = group.updates.map((update, n) => {
		const { redactionVersion, schemaVersion } = update.record;
		const record = { redactionVersion, schemaVersion, ...(packed[n] ?? missing()) };
		return { ...updateRow({ ...update, record }, bytes, update.errorSequence), ...ownerColumn(group, update) };
	});
	const events = group.events.map(({ sequence, conversationId, receivedAt, sender, origin, event }) => {
		const [text, secrets] = [columnOfEvent(event), packSecrets(event.secrets)];
		const row = { ...event, conversationId, receivedAt, sender, origin, text, secrets };
		const columns = eventRow(sequence - PROVISIONAL, encodeKey(event.eventId), row, bytes);
		return { ...columns, ...ownerColumn(group, row) };
	});
	const heads = [...group.heads].map(([id, head]) => headRow(id, head, group.origins.get(id)));
	const errors = [...group.activities].flatMap(([id, { error }]) =>
		error !== undefined && error.sequence > PROVISIONAL ? [id] : [],
	);
	const notifies = writer.notifies && updates.length + events.length > 0;
	const rows = [updates, events, heads].map(json);
	return {
		name: "write_group",
		text: WRITE_GROUP,
		values: [updates.length, events.length, bytes.all(), ...rows, writer.id, writer.group, notifies, errors],
	};
}

function ownerColumn(group: WrittenGroup, { conversationId }: { readonly conversationId: string }) {
	return ownerText(originOf(group, conversationId).owner);
}

function ownerText(owner: string | undefined) {
	return owner === undefined ? {} : { owner: encodeText(owner) };
}

function missing(): never {
	throw new Error("the packed form of a record is missing");
}
