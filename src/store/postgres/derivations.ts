import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { addDerived } from "../activity.ts";
import { asciiLower, orderedTokens } from "../condition.ts";
import type { Derivation, DerivationStep, DerivedEvents, DerivedSummary } from "../derivation.ts";
import { forgetInSummary, relationsIn } from "../erased-updates.ts";
import { idDigest } from "../erasure.ts";
import { activityFrom, originFrom } from "../rows.ts";
import { bigint, integer, text } from "../values.ts";
import type { Connections } from "./connections.ts";
import { findErasures } from "./erasures.ts";
import { lockConversations } from "./locks.ts";
import { ACTIVITY_COLUMNS, decoded, isConversationId } from "./rows.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";
import { activitiesQuery, standingsQuery } from "./written-rows.ts";

export async function readDerivation(session: Session, name: string): Promise<Derivation | undefined> {
	const [[row] = []] = await session.query({
		text: "SELECT version, through FROM conversation_updates.derivations WHERE name = $1",
		values: [name],
	});
	return row && { version: integer(row.version), through: bigint(row.through) };
}

/** Stores a step in a transaction of its own. */
export async function saveDerivation(
	connections: Connections,
	{ name, version, through, summaries = [], activities = [], responses = [] }: DerivationStep,
): Promise<void> {
	await connections.transaction(async (transaction) => {
		const changed = [...summaries, ...activities];
		if (changed.length > 0)
			await transaction.query(lockConversations(changed.map(({ conversationId }) => conversationId)));
		const added = await addToActivities(transaction, activities);
		const kept = await withoutErased(transaction, summaries);
		await transaction.commit(...kept.flatMap(summaryQueries), ...added, ...responsesQueries(responses), {
			text: `
				INSERT INTO conversation_updates.derivations VALUES ($1, $2, $3)
				ON CONFLICT (name) DO UPDATE SET version = excluded.version, through = excluded.through
			`,
			values: [name, version, through],
		});
	});
}

/** Returns summaries without the conversations that were erased since the records named them. */
async function withoutErased(session: Session, summaries: readonly DerivedSummary[]): Promise<DerivedSummary[]> {
	const related = new Set(summaries.flatMap(({ summary }) => relationsIn(summary)).filter(isConversationId));
	if (related.size === 0) return [...summaries];
	const erased = new Set((await findErasures(session, [...related])).map(({ idDigest: digest }) => digest));
	return summaries.map((one) => ({
		...one,
		summary: forgetInSummary(one.summary, (id) => erased.has(idDigest(id))) ?? one.summary,
	}));
}

/** Returns the query that stores the responses that events show, if there are any. */
function responsesQueries(responses: NonNullable<DerivationStep["responses"]>): Query[] {
	if (responses.length === 0) return [];
	return [
		{
			text: `
				UPDATE conversation_updates.events e SET llm_response_id = r.response
				FROM unnest($1::bigint[], $2::text[]) AS r (sequence, response) WHERE e.sequence = r.sequence
			`,
			values: [
				responses.map(({ sequence }) => sequence),
				responses.map(({ llmResponseId }) => encodeText(llmResponseId)),
			],
		},
	];
}

/** Returns the query that adds what was derived from events to activities, if there is any. */
async function addToActivities(session: Session, derived: readonly DerivedEvents[]): Promise<Query[]> {
	if (derived.length === 0) return [];
	const [rows = []] = await session.query({
		text: `SELECT a.conversation_id, a.sender, a.owner, ${ACTIVITY_COLUMNS} FROM conversation_updates.activities a
			WHERE a.conversation_id = ANY ($1::uuid[])`,
		values: [derived.map(({ conversationId }) => conversationId)],
	});
	const facts = new Map(derived.map((one) => [one.conversationId, one]));
	const activities = rows.flatMap((row) => {
		const conversationId = text(row.conversation_id);
		const one = facts.get(conversationId);
		if (one === undefined) return [];
		const activity = addDerived(activityFrom(row, decoded), one);
		return [{ conversationId, origin: originFrom(row, decoded), activity }];
	});
	return activities.length === 0 ? [] : [activitiesQuery(activities), standingsQuery([...facts.keys()])];
}

/** Returns the queries that replace a summary, and the values that lists filter by if its update is the current one. */
function summaryQueries({ sequence, summary }: DerivedSummary): Query[] {
	const { agentKind, model, title, tags, accumulatedCost, tokens } = fromBinary(ConversationSummarySchema, summary);
	const current = "FROM conversation_updates.conversations WHERE sequence = $1";
	return [
		{
			text: "UPDATE conversation_updates.updates SET summary = $2 WHERE sequence = $1 AND summary <> $2",
			values: [sequence, Buffer.from(summary)],
		},
		{
			text: `UPDATE conversation_updates.conversations SET agent_kind = $2, model = $3, cost = $4, tokens = $5
				WHERE sequence = $1`,
			values: [sequence, encodeKey(agentKind), encodeKey(model), accumulatedCost, orderedTokens(tokens)],
		},
		...["titles", "tags"].map((table) => ({
			text: `DELETE FROM conversation_updates.${table} WHERE conversation_id = (SELECT conversation_id ${current})`,
			values: [sequence],
		})),
		...(title === undefined ? [] : [encodeText(asciiLower(title))]).map((stored) => ({
			text: `INSERT INTO conversation_updates.titles SELECT conversation_id, $2 ${current}`,
			values: [sequence, stored],
		})),
		...Object.entries(tags).map(([key, value]) => ({
			text: `INSERT INTO conversation_updates.tags SELECT conversation_id, $2, $3, sequence ${current}`,
			values: [sequence, encodeKey(key), encodeKey(value)],
		})),
	];
}
