import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { asciiLower } from "../condition.ts";
import type { Derivation, DerivationStep, DerivedSummary } from "../derivation.ts";
import { bigint, integer } from "../values.ts";
import type { Connections } from "./connections.ts";
import { lockConversations } from "./locks.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";

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
	{ name, version, through, summaries }: DerivationStep,
): Promise<void> {
	await connections.transaction(async (transaction) => {
		if (summaries.length > 0)
			await transaction.query(lockConversations(summaries.map(({ conversationId }) => conversationId)));
		await transaction.commit(...summaries.flatMap(summaryQueries), {
			text: `
				INSERT INTO conversation_updates.derivations VALUES ($1, $2, $3)
				ON CONFLICT (name) DO UPDATE SET version = excluded.version, through = excluded.through
			`,
			values: [name, version, through],
		});
	});
}

/** Returns the queries that replace a summary, and the values that lists filter by if its update is the current one. */
function summaryQueries({ sequence, summary }: DerivedSummary): Query[] {
	const { agentKind, model, title, tags } = fromBinary(ConversationSummarySchema, summary);
	const current = "FROM conversation_updates.conversations WHERE sequence = $1";
	return [
		{
			text: "UPDATE conversation_updates.updates SET summary = $2 WHERE sequence = $1",
			values: [sequence, Buffer.from(summary)],
		},
		{
			text: "UPDATE conversation_updates.conversations SET agent_kind = $2, model = $3 WHERE sequence = $1",
			values: [sequence, encodeKey(agentKind), encodeKey(model)],
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
