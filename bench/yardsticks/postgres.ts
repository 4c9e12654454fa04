import type pg from "pg";
import { z } from "zod";
import { quantile } from "../figures.ts";
import { connect, type Rows } from "../processes/database-server.ts";
import { serve } from "../processes/parent.ts";
import { type InsertResult, insertPlan } from "./insert-plan.ts";

/**
 * Lower bound of the cost of durable ingest with PostgreSQL: the driver copies the rows of a database's current updates
 * as new updates, in groups over one connection. A group is one transaction in one round trip.
 */

/** A table whose rows are copied. */
interface Table {
	readonly name: string;
	/** Columns of the primary key. Undefined when every row is new. */
	readonly key: readonly string[] | undefined;
	/** Columns that are set to the sequence of the new update. */
	readonly numbered: readonly string[];
}

const TABLES: readonly Table[] = [
	{ name: "updates", key: undefined, numbered: ["sequence"] },
	{ name: "heads", key: ["conversation_id"], numbered: ["sequence"] },
];

/** The rows of a conversation's current update, by table. */
type Update = ReadonlyMap<Table, Rows>;

interface Source {
	readonly client: pg.Client;
	readonly updates: readonly Update[];
	next: number;
	sequence: number;
}

let source: Source | undefined;

serve(insertPlan, async ({ url, group, milliseconds }): Promise<InsertResult> => {
	source ??= await open(url);
	const { client } = source;
	const times: number[] = [];
	const start = performance.now();
	let now = start;
	for (; now - start < milliseconds; now = performance.now()) {
		const queries = groupQueries(source, group);
		await Promise.all([
			client.query("BEGIN"),
			...queries.map(({ text, values }) => client.query(text, values)),
			client.query("COMMIT"),
		]);
		times.push(performance.now() - now);
	}
	const seconds = (now - start) / 1000;
	return { rows: times.length * group, seconds, latency: [quantile(times, 0.5), quantile(times, 0.99)] };
});

async function open(url: string): Promise<Source> {
	const client = await connect(url);
	const rows = new Map<string, Map<Table, Rows[number][]>>();
	let sequence = 0;
	for (const table of TABLES) {
		const current = table.name === "updates" ? "AND t.sequence = c.sequence" : "";
		const all = await client.query<Rows[number]>(
			`SELECT t.* FROM conversation_updates.${table.name} t
			JOIN conversation_updates.heads c ON c.conversation_id = t.conversation_id ${current}`,
		);
		for (const row of all.rows) {
			const tables = rows.getOrInsertComputed(z.string().parse(row.conversation_id), () => new Map());
			tables.getOrInsertComputed(table, () => []).push(row);
			sequence = Math.max(sequence, Number(row.sequence ?? 0));
		}
	}
	return { client, updates: [...rows.values()], next: 0, sequence };
}

function groupQueries(from: Source, size: number): { text: string; values: unknown[] }[] {
	const group = Array.from({ length: size }, () => {
		const update = from.updates[from.next++ % from.updates.length];
		return { update, sequence: ++from.sequence };
	});
	return TABLES.flatMap((table) => {
		const rows = group.flatMap(({ update, sequence }) => {
			const numbers = Object.fromEntries(table.numbered.map((column) => [column, sequence]));
			return (update?.get(table) ?? []).map((row) => ({ ...row, ...numbers }));
		});
		return rows.length === 0 ? [] : [insertQuery(table, rows)];
	});
}

/** Returns an INSERT of several rows with a parameter for each value. */
function insertQuery({ name, key }: Table, rows: Rows): { text: string; values: unknown[] } {
	const columns = Object.keys(rows[0] ?? {});
	const tuples = rows.map((_, n) => `(${columns.map((__, m) => `$${n * columns.length + m + 1}`).join()})`);
	const changed = columns.filter((column) => key?.includes(column) === false);
	const conflict =
		key === undefined
			? ""
			: `ON CONFLICT (${key.join()}) DO UPDATE SET ${changed.map((column) => `${column} = excluded.${column}`).join()}`;
	return {
		text: `INSERT INTO conversation_updates.${name} (${columns.join()}) VALUES ${tuples.join()} ${conflict}`,
		values: rows.flatMap((row) => columns.map((column) => row[column])),
	};
}
