import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { addDerived } from "../activity.ts";
import type { Derivation, DerivationStep } from "../derivation.ts";
import { forgetInSummary } from "../erased-updates.ts";
import { bigint, integer } from "../values.ts";
import { findActivity, writeActivity } from "./activities.ts";
import { findErasure } from "./erasures.ts";
import type { Statements } from "./statements.ts";
import { findConversation, refreshStanding, updateConversation } from "./update-writer.ts";

export function readDerivation(statements: Statements, name: string): Derivation | undefined {
	const row = statements.prepare("SELECT version, through FROM derivations WHERE name = ?").get(name);
	return row && { version: integer(row.version), through: bigint(row.through) };
}

/** Stores a step. The caller has begun a transaction. */
export function saveDerivation(
	statements: Statements,
	{ name, version, through, summaries = [], activities = [], responses = [] }: DerivationStep,
): void {
	const isErased = (id: string) => findErasure(statements, id) !== undefined;
	for (const { conversationId, sequence, summary: derived } of summaries) {
		// It was derived from a record that may have named a conversation which was erased meanwhile.
		const summary = forgetInSummary(derived, isErased) ?? derived;
		statements
			.prepare("UPDATE updates SET summary = ? WHERE sequence = ? AND summary <> ?")
			.run(summary, sequence, summary);
		const known = findConversation(statements, conversationId);
		if (known?.state.sequence === sequence)
			updateConversation(statements, known, known.state, fromBinary(ConversationSummarySchema, summary));
	}
	for (const { conversationId, ...derived } of activities) {
		const known = findActivity(statements, conversationId);
		if (known === undefined) continue;
		// The origin of a conversation that has an activity stays the same.
		const origin = { sender: undefined, owner: undefined };
		writeActivity(statements, conversationId, known.id, addDerived(known, derived), origin);
		refreshStanding(statements, conversationId);
	}
	const setResponse = statements.prepare("UPDATE events SET llm_response_id = ? WHERE sequence = ?");
	for (const { sequence, llmResponseId } of responses) setResponse.run(llmResponseId, sequence);
	statements
		.prepare("INSERT OR REPLACE INTO derivations (name, version, through) VALUES (?, ?, ?)")
		.run(name, version, through);
}
