import type { Config } from "../config/config.ts";
import type { Database } from "../store/database.ts";
import { migrateDatabase, withExportSource, withImportTarget } from "../store/open.ts";
import { backupDatabase, restoreDatabase } from "../store/sqlite/backup.ts";
import { sequenceOption, UsageError, type Values } from "./options.ts";
import { mebibytes, print, rows, showError, showProgress } from "./output.ts";

/** The command `backup`. */
export async function backupTo(file: string, { database }: Config): Promise<void> {
	const path = sqlitePath(database);
	const newest = await backupDatabase(path, file, showProgress(mebibytes, "copied"));
	print(`${file} holds the database ${path} up to sequence ${newest}.`);
}

/** The command `restore`. */
export async function restoreFrom(file: string, { database }: Config): Promise<void> {
	const path = sqlitePath(database);
	const { newest, replacedPath } = await restoreDatabase(path, file, showProgress(mebibytes, "copied"));
	const kept = replacedPath === undefined ? "" : ` The former database is ${replacedPath}.`;
	print(`${path} is restored from ${file}, up to sequence ${newest}.${kept}`);
}

/** @throws Error when the database is not a SQLite file */
function sqlitePath(database: Database): string {
	if (database.engine === "sqlite") return database.path;
	throw new Error(
		"backup and restore are only for SQLite; for PostgreSQL use pg_dump and pg_restore, or export and import",
	);
}

export async function migrate(
	{ database }: Config,
	{ print: onlyPrints = false, distribute = false }: Values,
): Promise<void> {
	if (onlyPrints) {
		const { CREATION } = await import("../store/postgres/schema.ts");
		return print(CREATION.map((statement) => `${statement};`).join("\n"));
	}
	if (database.engine === "sqlite") return print(`Nothing to do: serve creates and upgrades ${database.path} itself.`);
	const { from, to } = await migrateDatabase(database, { error: showError }, distribute);
	if (from === to) print(`The schema already has version ${to}.`);
	else
		print(from === 0 ? `Created the schema with version ${to}.` : `Upgraded the schema from version ${from} to ${to}.`);
	if (distribute) print("The tables are distributed.");
}

/** The command `export`. */
export async function exportTo(file: string, options: Values, config: Config): Promise<void> {
	const { format, form, filter } = options;
	if (format !== undefined) {
		if (format !== "trajectories") throw new UsageError("--format must be trajectories");
		const { exportTrajectories } = await import("./runs.ts");
		return await exportTrajectories(config, file, options);
	}
	if (form !== undefined || filter !== undefined)
		throw new UsageError("--form and --filter are only for --format trajectories");
	const { database } = config;
	const { "after-update": update, "after-event": event, all: withKeys = false } = options;
	const isWhole = update === undefined && event === undefined;
	if (withKeys && !isWhole) throw new UsageError("--all is only for an export of the whole database");
	const after = isWhole
		? undefined
		: { update: sequenceOption("after-update", update ?? "0"), event: sequenceOption("after-event", event ?? "0") };
	// Loaded here, because only these commands need them.
	const { exportLines } = await import("../store/export/export.ts");
	const { writeExport } = await import("../store/export/file.ts");
	const { readRanges } = await import("../store/export/tables.ts");
	const { updates, events } = await withExportSource(database, { error: showError }, async (source) => {
		await writeExport(exportLines(source, after, showProgress(rows, "exported"), withKeys), file);
		return await readRanges(source);
	});
	const of = isWhole ? "the whole database" : "what is new";
	const result = `${file} has ${of} up to update ${updates.newest} and event ${events.newest}.`;
	if (file !== "-") print(result);
}

/** The command `import`. */
export async function importFrom(file: string, { database }: Config): Promise<void> {
	const { importStore } = await import("../store/export/export.ts");
	const { readExport } = await import("../store/export/file.ts");
	const { updates, events } = await withImportTarget(database, { error: showError }, (target) =>
		importStore(readExport(file), target, showProgress(rows, "imported")),
	);
	print(`The database has what ${file} has, up to update ${updates.newest} and event ${events.newest}.`);
}
