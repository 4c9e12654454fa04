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
import type { Connections } from "./connections.ts";
import { findErasures } from "./erasures.ts";
import { lockConversations } from "./locks.ts";
import { getOrigin } from "./record-state.ts";
import { decoded } from "./rows.ts";
import { json } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";

/** Reads what is stored of the usage of a conversation. */
export function usageOf(row: Row, prefix: string): UsageState {
	const column = (name: string) => row[prefix + name];
	return {
		life: integer(column("life")),
		lifeBeganAt: nullable(bigint, column("life_began_at")),
		digest: bigint(column("digest")),
		ledger: decoded(column("ledger")),
		sender: decoded(column("sender")),
		owner: decoded(column("owner")),
	};
}

/** Columns of a conversation `k` of usage_conversations with its ledger. */
export const LEDGER_COLUMNS = `k.id, k.life, k.life_began_at, k.digest, k.ledger, k.sender, k.owner, (
	SELECT coalesce(json_agg(json_build_array(${ledgerArray((column) => `${column}::text`)})), '[]')::text
	FROM conversation_updates.usage_ledger l WHERE l.conversation = k.id
) AS rows`;

/** Reads {@link LEDGER_COLUMNS}. */
export function ledgerOf(row: Row): UsageLedger {
	return { conversationId: text(row.id), state: usageOf(row, ""), rows: ledgerFrom(row.rows, decoded) };
}

export async function getUsage(session: Session, conversationId: string): Promise<StoredUsage> {
	const values = [conversationId];
	const [[row] = [], responses = []] = await session.query(
		{ text: `SELECT ${LEDGER_COLUMNS} FROM conversation_updates.usage_conversations k WHERE k.id = $1`, values },
		{
			text: `
				SELECT llm_response_id, happened_at, received_at FROM conversation_updates.events
				WHERE conversation_id = $1 AND llm_response_id IS NOT NULL
			`,
			values,
		},
	);
	return {
		ledger: row && ledgerOf(row),
		responses: responses.map(({ llm_response_id, happened_at, received_at }) => ({
			key: decoded(llm_response_id),
			happenedAt: bigint(happened_at),
			receivedAt: bigint(received_at),
		})),
	};
}

/** Corrects usage: see `Store.correctUsage`. */
export async function correctUsage(connections: Connections, correction: UsageCorrection): Promise<boolean> {
	const { conversationId } = correction;
	return await connections.transaction(async (transaction) => {
		// Read in a later statement than the lock, which sees what other transactions have written before.
		const [, [row] = []] = await transaction.query(lockConversations([conversationId]), {
			text: `SELECT ${LEDGER_COLUMNS} FROM conversation_updates.usage_conversations k WHERE k.id = $1`,
			values: [conversationId],
		});
		if ((await findErasures(transaction, [conversationId])).length > 0) return false;
		const origin = await getOrigin(transaction, conversationId);
		const written = correctedUsage(correction, row && ledgerOf(row).state, origin);
		if (written !== undefined) await transaction.commit(...usageQueries(written));
		return written !== undefined;
	});
}

/**
 * Returns the queries that write usage. They lock sums in the order of their keys, so that transactions cannot deadlock.
 *
 * @param usage with at least one state, unless rows are moved
 * @param moved rows by which the sums change beside
 */
export function usageQueries({ states, rows }: WrittenUsage, moved: readonly LedgerRow[] = []): Query[] {
	const stateRows = [...states].map(([id, { lifeBeganAt, ledger, sender, owner, ...state }]) => ({
		id,
		...state,
		life_began_at: lifeBeganAt,
		ledger: encodeText(ledger),
		sender: encodeText(sender),
		owner: encodeText(owner),
	}));
	const write = { name: "write_usage_states", text: WRITE_STATES, values: [json(stateRows)] };
	if (rows.size + moved.length === 0) return [write];
	const ledger = [...rows.values()].map((row) => ({
		conversation: row.conversationId,
		...encoded(ledgerColumns(row)),
	}));
	const sums = json(sumsOf([...rows.values(), ...moved]).map((sum) => encoded(sumColumns(sum))));
	return [
		write,
		{ name: "add_usage", text: ADD_USAGE, values: [json(ledger), sums] },
		...([...rows.values()].some(takesBack)
			? [{ name: "remove_zero_usage", text: REMOVE_ZERO, values: [json(ledger)] }]
			: []),
		...(moved.length > 0 ? [{ text: REMOVE_ZERO_SUMS, values: [sums] }] : []),
	];
}

/** Returns the query that reads the ledgers of conversations. */
export function ledgersQuery(conversationIds: readonly string[]): Query {
	return {
		text: `
			SELECT k.id, ${LEDGER_ROW_COLUMNS} FROM conversation_updates.usage_conversations k
			JOIN conversation_updates.usage_ledger l ON l.conversation = k.id WHERE k.id = ANY ($1::uuid[])
		`,
		values: [conversationIds],
	};
}

/** Reads the rows of {@link ledgersQuery}. */
export function ledgerFromRows(rows: readonly Row[]): LedgerRow[] {
	return rows.map((row) => ledgerRowFrom(row, text(row.id), decoded));
}

/**
 * Returns the queries that give the usage of conversations an owner.
 *
 * @param rows result of {@link ledgersQuery} for the same conversations
 */
export function moveUsageQueries(conversationIds: readonly string[], rows: readonly Row[], owner: string): Query[] {
	const moved = rowsOfMove(ledgerFromRows(rows), { owner: nameOf(owner) });
	const sums = json(sumsOf(moved).map((sum) => encoded(sumColumns(sum))));
	return [
		{ text: ADD_TO_SUMS, values: [sums] },
		{ text: REMOVE_ZERO_SUMS, values: [sums] },
		{
			text: "UPDATE conversation_updates.usage_conversations SET owner = $1 WHERE id = ANY ($2::uuid[])",
			values: [encodeText(nameOf(owner)), conversationIds],
		},
	];
}

/** Returns a row with its texts in their stored form. */
function encoded(row: Readonly<Record<string, string | bigint>>): Record<string, string | bigint> {
	const columns = Object.entries(row).map(([name, value]) => [
		name,
		typeof value === "string" ? encodeText(value) : value,
	]);
	return Object.fromEntries(columns);
}

const STATE_ROW = "id uuid, sender text, owner text, life bigint, life_began_at bigint, digest bigint, ledger text";

const WRITE_STATES = `
	INSERT INTO conversation_updates.usage_conversations (id, sender, owner, life, life_began_at, digest, ledger)
	SELECT id, sender, owner, life, life_began_at, digest, ledger FROM json_to_recordset($1::json) AS r (${STATE_ROW})
	ON CONFLICT (id) DO UPDATE SET
		life = excluded.life, life_began_at = excluded.life_began_at, digest = excluded.digest, ledger = excluded.ledger
`;

/** Returns a column with its type. */
function typed(name: string): string {
	return `${name} ${name === "conversation" ? "uuid" : NUMBERS.has(name) ? "bigint" : "text"}`;
}

const NUMBERS = new Set<string>(["life", "quarter", "length", "start", ...AMOUNT_COLUMNS]);

const REMOVE_ZERO = removeZero("usage_ledger", LEDGER_KEY);
const REMOVE_ZERO_SUMS = removeZero("usage_sums", SUMS_KEY);

/** Returns the SQL that removes the rows with the keys of the first parameter whose amounts are zero. */
function removeZero(table: string, key: readonly string[]): string {
	return `
		DELETE FROM conversation_updates.${table} WHERE (${key.join()}) IN (
			SELECT ${key.join()} FROM json_to_recordset($1::json) AS r (${key.map(typed).join()})
		) AND ${IS_ZERO}
	`;
}

const ADD_TO_SUMS = addTo("usage_sums", SUMS_KEY, "$1");

const ADD_USAGE = `
	WITH ledger AS (${addTo("usage_ledger", LEDGER_KEY, "$1")})
	${addTo("usage_sums", SUMS_KEY, "$2")}
`;

/** Returns the SQL that adds rows to those with the same keys. A number that would pass its limit ends at it. */
function addTo(table: string, key: readonly string[], rows: string): string {
	const columns = [...key, ...AMOUNT_COLUMNS];
	const added = AMOUNT_COLUMNS.map(
		(name) => `
			${name} = least(greatest(t.${name}::numeric + excluded.${name}, -9223372036854775808), 9223372036854775807)`,
	);
	return `
		INSERT INTO conversation_updates.${table} AS t (${columns.join()})
		SELECT ${columns.join()}
		FROM json_to_recordset(${rows}::json) AS r (${columns.map(typed).join()})
		ON CONFLICT (${key.join()}) DO UPDATE SET ${added.join()}
	`;
}
