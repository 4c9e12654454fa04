import type { Response } from "../planning.ts";
import { ledgerArray, ledgerFrom } from "../usage-ledgers.ts";
import { nameOf } from "../usage-names.ts";
import {
	correctedUsage,
	type LedgerRow,
	rowsOfMove,
	type StoredUsage,
	sumsOf,
	type UsageCorrection,
	type UsageLedger,
	type UsageState,
	type WrittenUsage,
} from "../usage-plan.ts";
import {
	AMOUNT_COLUMNS,
	IS_ZERO,
	LEDGER_KEY,
	LEDGER_ROW_COLUMNS,
	ledgerColumns,
	ledgerRowFrom,
	SUMS_KEY,
	sumColumns,
	takesBack,
} from "../usage-sql.ts";
import { bigint, integer, nullable, type Row, text } from "../values.ts";
import { findErasure } from "./erasures.ts";
import { getOrigin } from "./record-state.ts";
import type { Statements } from "./statements.ts";

/** Finds what is stored of the usage of a conversation; returns undefined when none has been counted. */
export function findUsage(statements: Statements, conversationId: string): UsageState | undefined {
	const row = statements
		.prepare(`
			SELECT life, life_began_at, digest, ledger, sender, owner FROM usage_conversations WHERE conversation_id = ?
		`)
		.get(conversationId);
	return row && usageFrom(row);
}

/** Reads what is stored of the usage of a conversation. */
function usageFrom(row: Row): UsageState {
	return {
		life: integer(row.life),
		lifeBeganAt: nullable(bigint, row.life_began_at),
		digest: bigint(row.digest),
		ledger: text(row.ledger),
		sender: text(row.sender),
		owner: text(row.owner),
	};
}

/** Columns of a conversation `k` of usage_conversations with its ledger. */
export const LEDGER_COLUMNS = `k.*, (
	SELECT json_group_array(json_array(${ledgerArray((column) => `CAST(${column} AS TEXT)`)}))
	FROM usage_ledger l WHERE l.conversation = k.id
) AS rows`;

/** Reads {@link LEDGER_COLUMNS}. */
export function ledgerOf(row: Row): UsageLedger {
	return {
		conversationId: text(row.conversation_id),
		state: usageFrom(row),
		rows: ledgerFrom(row.rows, text),
	};
}

export function getUsage(statements: Statements, conversationId: string): StoredUsage {
	const row = statements
		.prepare(`SELECT ${LEDGER_COLUMNS} FROM usage_conversations k WHERE conversation_id = ?`)
		.get(conversationId);
	const responses = statements
		.prepare(`
			SELECT e.llm_response_id, e.happened_at, e.received_at
			FROM activities a CROSS JOIN events e INDEXED BY events_by_response ON e.activity = a.id
			WHERE a.conversation_id = ? AND e.llm_response_id IS NOT NULL
		`)
		.all(conversationId);
	return {
		ledger: row && ledgerOf(row),
		responses: responses.map(({ llm_response_id, happened_at, received_at }) => ({
			key: text(llm_response_id),
			happenedAt: bigint(happened_at),
			receivedAt: bigint(received_at),
		})),
	};
}

/** Corrects usage: see `Store.correctUsage`. The caller has begun a transaction. */
export function correctUsage(statements: Statements, correction: UsageCorrection): boolean {
	const { conversationId } = correction;
	if (findErasure(statements, conversationId) !== undefined) return false;
	const origin = getOrigin(statements, conversationId);
	const written = correctedUsage(correction, findUsage(statements, conversationId), origin);
	if (written !== undefined) writeUsage(statements, written);
	return written !== undefined;
}

/** Returns the time of the first event with a response; undefined when there is none. */
export function findResponse(statements: Statements, { conversationId, key }: Response): bigint | undefined {
	const row = statements
		.prepare(`
			SELECT min(e.happened_at) AS happened_at
			FROM activities a CROSS JOIN events e INDEXED BY events_by_response ON e.activity = a.id
			WHERE a.conversation_id = ? AND e.llm_response_id = ?
		`)
		.get(conversationId, key);
	return nullable(bigint, row?.happened_at);
}

/**
 * Writes usage. The caller has begun a transaction.
 *
 * @param moved rows by which the sums change beside
 */
export function writeUsage(
	statements: Statements,
	{ states, rows }: WrittenUsage,
	moved: readonly LedgerRow[] = [],
): void {
	const ids = new Map([...states].map(([id, state]) => [id, writeState(statements, id, state)]));
	for (const row of rows.values()) {
		const { conversationId, life, quarter, model, usageId, agentKind } = row;
		const conversation = ids.get(conversationId) ?? null;
		statements.prepare(ADD_TO_LEDGER).run({ conversation, ...ledgerColumns(row) });
		if (takesBack(row)) statements.prepare(REMOVE_IF_ZERO).run(conversation, life, quarter, model, usageId, agentKind);
	}
	for (const sum of sumsOf(rows.values())) statements.prepare(ADD_TO_SUMS).run(sumColumns(sum));
	moveSums(statements, moved);
}

function moveSums(statements: Statements, moved: readonly LedgerRow[]): void {
	for (const sum of sumsOf(moved)) {
		statements.prepare(ADD_TO_SUMS).run(sumColumns(sum));
		const { length, start, model, usageId, agentKind, sender, owner } = sum;
		statements.prepare(REMOVE_ZERO_SUM).run(length, start, model, usageId, agentKind, sender, owner);
	}
}

/** Writes the state of a conversation's usage. Returns its row id. */
function writeState(statements: Statements, conversationId: string, state: UsageState): bigint {
	const row = statements
		.prepare(`
			INSERT INTO usage_conversations (conversation_id, sender, owner, life, life_began_at, digest, ledger)
			VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (conversation_id) DO UPDATE SET
				life = excluded.life, life_began_at = excluded.life_began_at, digest = excluded.digest, ledger = excluded.ledger
			RETURNING id
		`)
		.get(conversationId, state.sender, state.owner, state.life, state.lifeBeganAt ?? null, state.digest, state.ledger);
	return bigint(row?.id);
}

/**
 * Gives the usage of conversations an owner. The caller has begun a transaction.
 *
 * @param conversationIds conversations that do not have this owner
 */
export function moveUsage(statements: Statements, conversationIds: readonly string[], owner: string): void {
	const rows = conversationIds.flatMap((id) => findLedger(statements, id));
	moveSums(statements, rowsOfMove(rows, { owner: nameOf(owner) }));
	const move = statements.prepare("UPDATE usage_conversations SET owner = ? WHERE conversation_id = ?");
	for (const id of conversationIds) move.run(nameOf(owner), id);
}

/** Returns the rows of the ledger of a conversation. */
export function findLedger(statements: Statements, conversationId: string): LedgerRow[] {
	return statements
		.prepare(`
			SELECT ${LEDGER_ROW_COLUMNS} FROM usage_conversations k CROSS JOIN usage_ledger l ON l.conversation = k.id
			WHERE k.conversation_id = ?
		`)
		.all(conversationId)
		.map((row) => ledgerRowFrom(row, conversationId, text));
}

const ADD_TO_LEDGER = addTo("usage_ledger", LEDGER_KEY);
const REMOVE_IF_ZERO = removeZero("usage_ledger", LEDGER_KEY);
const ADD_TO_SUMS = addTo("usage_sums", SUMS_KEY);
const REMOVE_ZERO_SUM = removeZero("usage_sums", SUMS_KEY);

/** Returns the SQL that removes the row with a key if its amounts are zero. */
function removeZero(table: string, key: readonly string[]): string {
	return `DELETE FROM ${table} WHERE ${key.map((name) => `${name} = ?`).join(" AND ")} AND ${IS_ZERO}`;
}

/** Returns the SQL that adds a row to the one with the same key. A number that would pass its limit ends at it. */
function addTo(table: string, key: readonly string[]): string {
	const columns = [...key, ...AMOUNT_COLUMNS];
	const added = AMOUNT_COLUMNS.map((name) => {
		const sum = `t.${name} + excluded.${name}`;
		// A sum of integers beyond 64 bits is a floating-point number.
		return `${name} = CASE typeof(${sum}) WHEN 'integer' THEN ${sum}
			ELSE iif(excluded.${name} > 0, 9223372036854775807, -9223372036854775808) END`;
	});
	return `
		INSERT INTO ${table} AS t (${columns.join()}) VALUES (${columns.map((name) => `:${name}`).join()})
		ON CONFLICT (${key.join()}) DO UPDATE SET ${added.join()}
	`;
}
