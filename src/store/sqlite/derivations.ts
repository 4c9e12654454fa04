import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import type { Derivation, DerivationStep } from "../derivation.ts";
import { bigint, integer } from "../values.ts";
import type { Statements } from "./statements.ts";
import { findConversation, updateConversation } from "./update-writer.ts";

export function readDerivation(statements: Statements, name: string): Derivation | undefined {
	const row = statements.prepare("SELECT version, through FROM derivations WHERE name = ?").get(name);
	return row && { version: integer(row.version), through: bigint(row.through) };
}

/** Stores a step. The caller has begun a transaction. */
export function saveDerivation(statements: Statements, { name, version, through, summaries }: DerivationStep): void {
	for (const { conversationId, sequence, summary } of summaries) {
		statements.prepare("UPDATE updates SET summary = ? WHERE sequence = ?").run(summary, sequence);
		const known = findConversation(statements, conversationId);
		if (known?.state.sequence === sequence)
			updateConversation(statements, known, known.state, fromBinary(ConversationSummarySchema, summary));
	}
	statements
		.prepare("INSERT OR REPLACE INTO derivations (name, version, through) VALUES (?, ?, ?)")
		.run(name, version, through);
}
