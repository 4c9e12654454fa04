import { LRUCache } from "lru-cache";
import { SCHEMA as SCHEMAS } from "../schema.ts";
import type { Session as AnySession, Change, Value } from "../session.ts";
import { tableOf } from "../tables.ts";
import { bigint, isConversationId, type Row } from "../values.ts";
import { lockSettled } from "./citus.ts";
import { settledSequences } from "./log.ts";
import {
	IN_LIST,
	insertRows,
	onConflict,
	orReplace,
	POSTGRES,
	prepared,
	readRow,
	removeRows,
	storedValue,
} from "./sql.ts";
import { findDocuments, writeWords } from "./text-index.ts";
import type { Query, Session } from "./transaction.ts";

const SCHEMA = SCHEMAS.postgres;

/** Statements with question marks, by these. Lists have one for each combination of conditions. */
const numbered = new LRUCache<string, string>({ max: 1_000 });

/** Returns a statement with $1, $2 … in place of its question marks. No statement has one in a text. */
function withNumbers(text: string): string {
	let found = numbered.get(text);
	if (found === undefined) {
		let count = 0;
		found = text.replaceAll("?", () => `$${++count}`);
		numbered.set(text, found);
	}
	return found;
}

/**
 * Returns the session of a transaction.
 *
 * @param prepares whether connections keep its statements prepared: there are few, and their plans do not depend on the values
 */
export function postgresSession(transaction: Session, prepares = false): AnySession {
	const run = async (query: Query): Promise<Row[]> => ((await transaction.query(query))[0] ?? []).map(readRow);
	return {
		...POSTGRES,
		all: (statement, ...values) => {
			// Of a list Citus asks all servers for the rows of joined tables, of one id only the server that has it.
			const lists = values.filter(isIds);
			const isOfOne = lists.length > 0 && lists.every(([id, ...others]) => others.length === 0 && isUuid(id));
			const text = isOfOne ? statement.replaceAll(IN_LIST, "= ?::uuid") : statement;
			const own = isOfOne ? values.map((value) => (isIds(value) ? (value[0] ?? null) : value)) : values;
			const query = { text: withNumbers(text), values: own.map(storedValue) };
			return run(prepares ? prepared(query) : query);
		},
		async write(name, changes) {
			const table = tableOf("postgres", name);
			const rows = changes.filter(isChanged).map(({ after }) => after);
			await transaction.query(...insertRows(table, rows, orReplace(table)));
		},
		async insert(name, rows, ifExists) {
			const table = tableOf("postgres", name);
			await transaction.query(...insertRows(table, rows, ifExists === undefined ? "" : onConflict(table, ifExists)));
		},
		async remove(name, keys) {
			await transaction.query(...removeRows(tableOf("postgres", name), keys));
		},
		async add(name, rows) {
			const table = tableOf("postgres", name);
			const numbers = Object.keys(table.columns).filter((column) => !table.key.includes(column));
			const sums = numbers.map(
				(column) => `
					${column} = least(greatest(t.${column}::numeric + excluded.${column}, -9223372036854775808), 9223372036854775807)`,
			);
			await transaction.query(
				...insertRows(table, rows, onConflict(table, `UPDATE SET ${sums.join()}`)),
				...removeRows(table, rows, numbers.map((column) => `AND ${column} = 0`).join(" ")),
			);
		},
		lock: (conversationIds) =>
			conversationIds.length === 0 ? Promise.resolve(false) : lockSettled(transaction, conversationIds),
		async lockTable(table) {
			await run({ text: `LOCK TABLE ${SCHEMA}${table} IN SHARE ROW EXCLUSIVE MODE` });
		},
		async lockSequences() {
			const [row] = await run({
				name: "lock_sequences",
				text: `SELECT newest_update, newest_event FROM ${SCHEMA}state FOR UPDATE`,
			});
			return { updates: bigint(row?.newest_update), events: bigint(row?.newest_event) };
		},
		async saveSequences({ updates, events }) {
			await run({
				name: "save_sequences",
				text: `UPDATE ${SCHEMA}state SET newest_update = $1, newest_event = $2`,
				values: [updates, events],
			});
		},
		find: async (conditions) => ({
			from: `${SCHEMA}conversations c`,
			tests: conditions.map(({ test }) => test),
		}),
		isSpread: () => transaction.spread.isDistributed(transaction),
		settled: (conversationId) => settledSequences(transaction, isUuid(conversationId) ? [conversationId] : undefined),
		writeWords: (step) => writeWords(transaction, step),
		findDocuments: (query) => findDocuments(transaction, query),
		async removeWordsOf(events) {
			await run({ text: `DELETE FROM ${SCHEMA}search_texts WHERE sequence = ANY ($1::bigint[])`, values: [events] });
		},
		emptyWords: async () => undefined,
	};
}

function isIds(value: Value): value is readonly string[] {
	return Array.isArray(value) && typeof value[0] !== "bigint";
}

function isUuid(id: string | undefined): id is string {
	return id !== undefined && isConversationId(id);
}

function isChanged({ before, after }: Change): boolean {
	return before === undefined || Object.keys(after).some((name) => before[name] !== after[name]);
}
