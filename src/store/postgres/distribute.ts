import { SCHEMA } from "../schema.ts";
import { allTables, type Table } from "../tables.ts";
import { text } from "../values.ts";
import type { Connections } from "./connections.ts";
import { lockSchema } from "./locks.ts";
import type { Session } from "./transaction.ts";

/** The table whose shards decide where those of all others are. */
const FIRST = `${SCHEMA.postgres}heads`;

/** Returns whether the database has the extension Citus. */
export async function isCitus(session: Session): Promise<boolean> {
	const [rows = []] = await session.query({ text: "SELECT 1 FROM pg_extension WHERE extname = 'citus'" });
	return rows.length > 0;
}

/**
 * Returns the tables of the service that are spread: those by conversation and the reference tables. The database has the
 * extension.
 */
export async function distributedTables(session: Session): Promise<ReadonlySet<string>> {
	const [rows = []] = await session.query({
		text: `
			SELECT n.nspname || '.' || c.relname AS name FROM pg_dist_partition p
			JOIN pg_class c ON c.oid = p.logicalrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = 'conversation_updates' AND p.partmethod IN ('h', 'n')
		`,
	});
	return new Set(rows.map(({ name }) => text(name)));
}

/**
 * Spreads the tables over the workers of Citus, with their rows: those by conversation in shards that are together for
 * each conversation, the reference tables as copies. Tables of which that is true already stay as they are. Each table is
 * a transaction of its own, so an interrupted call can be repeated.
 */
export async function distribute(connections: Connections): Promise<void> {
	for (const table of allTables("postgres").toSorted(firstFirst))
		await connections.transaction(
			async (session) => {
				await session.query(lockSchema);
				const name = SCHEMA.postgres + table.name;
				if (table.spread === "coordinator" || (await distributedTables(session)).has(name)) return;
				if (table.spread === "reference")
					await session.query({ text: "SELECT create_reference_table($1)", values: [name] });
				else
					await session.query({
						text: "SELECT create_distributed_table($1, $2, colocate_with => $3)",
						values: [name, conversationOf(table), name === FIRST ? "none" : FIRST],
					});
			},
			{ unlimited: true },
		);
}

function firstFirst(one: Table, other: Table): number {
	return Number(other.name === "heads") - Number(one.name === "heads");
}

/** Returns the column of a table's key that has the conversation. */
function conversationOf({ name, key, columns }: Table): string {
	const column = key.find((of) => columns[of] === "id");
	if (column === undefined) throw new Error(`the key of ${name} has no conversation`);
	return column;
}
