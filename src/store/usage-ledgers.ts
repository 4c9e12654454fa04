import type { UsageLedger, WrittenUsage } from "./usage-plan.ts";
import { AMOUNT_COLUMNS } from "./usage-sql.ts";
import { text } from "./values.ts";

/** The ledgers of conversations as exports read and imports write them. */

/** SQL for the columns of a row `l` of usage_ledger as {@link ledgerFrom} reads them; `text` converts to a text. */
export function ledgerArray(text: (column: string) => string): string {
	return [
		"l.life",
		"l.quarter",
		"l.model",
		"l.usage_id",
		"l.agent_kind",
		...AMOUNT_COLUMNS.map((name) => text(`l.${name}`)),
	].join();
}

/**
 * Reads the rows of the ledger of a conversation.
 *
 * @param column JSON text: an array of arrays with the columns of {@link ledgerArray}
 * @returns the rows, ordered by their keys
 */
export function ledgerFrom(column: unknown, decode: (value: unknown) => string): UsageLedger["rows"] {
	const rows: unknown = JSON.parse(text(column));
	if (!Array.isArray(rows)) throw new TypeError("the column does not hold a list of rows");
	const keyed = rows.map((row: readonly unknown[]) => {
		const read = ledgerRowFrom(row, decode);
		return { read, key: JSON.stringify([read.life, Number(read.quarter), read.model, read.usageId, read.agentKind]) };
	});
	return keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ read }) => read);
}

function ledgerRowFrom(
	[life, quarter, model, usageId, agentKind, ...amounts]: readonly unknown[],
	decode: (value: unknown) => string,
) {
	const [cost, promptTokens, completionTokens, cacheReadTokens, cacheWriteTokens, reasoningTokens, calls] = amounts.map(
		(amount) => BigInt(text(amount)),
	);
	return {
		life: Number(life),
		quarter: BigInt(Number(quarter)),
		model: decode(model),
		usageId: decode(usageId),
		agentKind: decode(agentKind),
		cost: cost ?? 0n,
		promptTokens: promptTokens ?? 0n,
		completionTokens: completionTokens ?? 0n,
		cacheReadTokens: cacheReadTokens ?? 0n,
		cacheWriteTokens: cacheWriteTokens ?? 0n,
		reasoningTokens: reasoningTokens ?? 0n,
		calls: calls ?? 0n,
	};
}

/** Returns what is to be written for ledgers of conversations that the database does not have yet. */
export function writtenLedgers(ledgers: readonly UsageLedger[]): WrittenUsage {
	const rows = ledgers.flatMap(({ conversationId, state: { sender, owner }, rows: own }) =>
		own.map((row) => ({ ...row, conversationId, sender, owner })),
	);
	return {
		states: new Map(ledgers.map(({ conversationId, state }) => [conversationId, state])),
		rows: new Map(rows.map((row, n) => [String(n), row])),
	};
}
