import type { Config } from "../config/config.ts";
import { showProgress } from "../progress.ts";
import { openExportSource, openImportTarget } from "../store/open.ts";
import { sequenceOption, UsageError, type Values } from "./options.ts";
import { print, rows, showError } from "./output.ts";

/** The command `export`. */
export async function exportTo(file: string, options: Values, config: Config): Promise<void> {
	const { format, form, filter } = options;
	if (format !== undefined) {
		if (format !== "trajectories") throw new UsageError("--format must be trajectories");
		const { exportTrajectories } = await import("./trajectories.ts");
		return await exportTrajectories(config, file, options);
	}
	if (form !== undefined || filter !== undefined)
		throw new UsageError("--form and --filter are only for --format trajectories");
	const { database } = config;
	const [update, event] = [sequenceOption(options, "after-update"), sequenceOption(options, "after-event")];
	const isWhole = update === undefined && event === undefined;
	const withKeys = options.all === true;
	if (withKeys && !isWhole) throw new UsageError("--all is only for an export of the whole database");
	const after = isWhole ? undefined : { update: update ?? 0n, event: event ?? 0n };
	// Loaded here, because only these commands need them.
	const { exportLines } = await import("../store/export/export.ts");
	const { writeExport } = await import("../store/export/file.ts");
	await using source = await openExportSource(database, { error: showError });
	const { updates, events } = await source.ranges();
	await writeExport(exportLines(source, after, showProgress(rows, "exported"), withKeys), file);
	const of = isWhole ? "the whole database" : "what is new";
	const result = `${file} has ${of} up to update ${updates.newest} and event ${events.newest}.`;
	if (file !== "-") print(result);
}

/** The command `import`. */
export async function importFrom(file: string, { database }: Config): Promise<void> {
	const { importStore } = await import("../store/export/export.ts");
	const { readExport } = await import("../store/export/file.ts");
	await using target = await openImportTarget(database, { error: showError });
	const [imported, verified] = [showProgress(rows, "imported"), showProgress(rows, "verified")];
	const { updates, events } = await importStore(readExport(file), target, imported, verified);
	print(`The database holds the same as ${file}, up to update ${updates.newest} and event ${events.newest}.`);
}
