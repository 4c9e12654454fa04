import type { Config } from "../config/config.ts";
import { migrateDatabase } from "../store/open.ts";
import type { Values } from "./options.ts";
import { print, showError } from "./output.ts";

/** The command `migrate`. */
export async function migrate(
	{ database }: Config,
	{ print: onlyPrints = false, distribute = false }: Values,
): Promise<void> {
	if (onlyPrints) {
		const { MIGRATIONS } = await import("../store/postgres/schema.ts");
		return print(
			MIGRATIONS.flat()
				.map((statement) => `${statement};`)
				.join("\n"),
		);
	}
	if (database.engine === "sqlite") return print(`Nothing to do: serve creates and upgrades ${database.path} itself.`);
	const { from, to } = await migrateDatabase(database, { error: showError }, distribute);
	if (from === to) print(`The schema already has version ${to}.`);
	else
		print(from === 0 ? `Created the schema with version ${to}.` : `Upgraded the schema from version ${from} to ${to}.`);
	if (distribute) print("The tables are distributed.");
}
