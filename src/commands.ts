import { parseArgs } from "node:util";
import { formatAddress } from "./config/address.ts";
import { type Config, ConfigError, readConfig } from "./config/config.ts";
import { variables } from "./config/variables.ts";
import { packageJson } from "./package-json.ts";
import { showProgress } from "./progress.ts";
import type { FirstKeys } from "./server.ts";
import type { Database } from "./store/database.ts";
import { migrateDatabase, openExportSource, openImportTarget } from "./store/open.ts";
import { backupDatabase, restoreDatabase } from "./store/sqlite/backup.ts";
import { createLogger } from "./telemetry/log.ts";
import { lineFormat } from "./telemetry/log-format.ts";
import { LogOutput } from "./telemetry/log-output.ts";

/** A command of the program. */
interface Command {
	/** Names of the operands. The last one may be left out or repeated if its name ends in `…`. */
	readonly operands: readonly string[];
	/** Names of the options that it takes. */
	readonly options?: readonly OptionName[];
	readonly meaning: string;
	/** Message for an error of the command; the error follows as the reason. */
	readonly failure: string;
	readonly run: (config: Config, operands: readonly string[], options: Values) => Promise<void> | void;
}

const OPTIONS = {
	help: { type: "boolean", short: "h" },
	version: { type: "boolean" },
	"after-update": { type: "string" },
	"after-event": { type: "string" },
	all: { type: "boolean" },
	scope: { type: "string" },
	owner: { type: "string" },
	expires: { type: "string" },
	sender: { type: "string", multiple: true },
	ids: { type: "string" },
	"agent-server": { type: "string" },
	"with-children": { type: "boolean" },
	"older-than": { type: "string" },
	status: { type: "string" },
	execute: { type: "boolean" },
} as const;
/** What stands for the value of an option in the usage; empty for an option without a value. */
const OPTION_VALUES = {
	"after-update": "N",
	"after-event": "N",
	all: "",
	scope: "SCOPE+SCOPE",
	owner: "TEAM",
	expires: "TIME",
	sender: "NAME",
	ids: "ID,ID",
	"agent-server": "URL",
	"with-children": "",
	"older-than": "TIME",
	status: "STATUS",
	execute: "",
} as const;
type OptionName = keyof typeof OPTION_VALUES;
/** Values of the options that were given. */
type Values = Readonly<
	Partial<Record<Exclude<OptionName, Flag | "sender">, string> & Record<Flag, boolean> & { readonly sender: string[] }>
>;
/** Names of the options without a value. */
type Flag = "all" | "with-children" | "execute";

const COMMANDS: Readonly<Record<string, Command>> = {
	serve: {
		operands: [],
		meaning: "run the service until SIGTERM or SIGINT (the default)",
		failure: "The service cannot start",
		run: serve,
	},
	config: {
		operands: [],
		meaning: "print the effective value of every variable and where it comes from; secrets are masked",
		failure: "The configuration cannot be shown",
		run: showConfig,
	},
	backup: {
		operands: ["FILE"],
		meaning: "copy the database into a new file, also while the service runs",
		failure: "The backup failed",
		run: async ({ database }, [file = ""]) => {
			const path = sqlitePath(database);
			const newest = await backupDatabase(path, file, showProgress(mebibytes, "copied"));
			print(`${file} holds the database ${path} up to sequence ${newest}.`);
		},
	},
	restore: {
		operands: ["FILE"],
		meaning: "replace the database with a copy of a backup; the service must not run",
		failure: "The restore failed",
		run: async ({ database }, [file = ""]) => {
			const path = sqlitePath(database);
			const { newest, replacedPath } = await restoreDatabase(path, file, showProgress(mebibytes, "copied"));
			const kept = replacedPath === undefined ? "" : ` The former database is ${replacedPath}.`;
			print(`${path} is restored from ${file}, up to sequence ${newest}.${kept}`);
		},
	},
	migrate: {
		operands: [],
		meaning: "create or upgrade the tables of a PostgreSQL database; `serve` does this too",
		failure: "The migration failed",
		run: migrate,
	},
	export: {
		operands: ["FILE"],
		options: ["all", "after-update", "after-event"],
		meaning:
			"write all data into a new file of JSON lines, also while the service runs; with --all also the hashes of access keys; with another option, only what came after that sequence; FILE is `-` for standard output, and is compressed if it ends in .zst or .gz",
		failure: "The export failed",
		run: (config, [file = ""], options) => exportTo(file, options, config),
	},
	import: {
		operands: ["FILE"],
		meaning: "read an export into an empty database of any engine, or continue an interrupted import",
		failure: "The import failed",
		run: (config, [file = ""]) => importFrom(file, config),
	},
	"keys add": {
		operands: ["NAME"],
		options: ["scope", "owner", "expires"],
		meaning:
			"create an access key and print it, also while the service runs; it has the scopes ingest+read or the given ones, and expires after a TIME such as 90d or 12h, or at a date",
		failure: "The key cannot be created",
		async run(config, [name = ""], { scope = "", owner = "", expires }) {
			const scopes = scope === "" ? [] : scope.split("+");
			const { addKey } = await import("./key-commands.ts");
			const { key, text } = await addKey(config, { name, scopes, owner, expires: expiryOption(expires) });
			process.stderr.write(`${text}\n`);
			print(key);
		},
	},
	"keys list": {
		operands: [],
		meaning: "print all access keys, without the keys themselves",
		failure: "The keys cannot be listed",
		async run(config) {
			const { listKeys } = await import("./key-commands.ts");
			for (const line of await listKeys(config)) print(line);
		},
	},
	"keys revoke": {
		operands: ["NAME"],
		meaning: "end an access key for good, also while the service runs",
		failure: "The key cannot be revoked",
		async run(config, [name = ""]) {
			const { revokeKey } = await import("./key-commands.ts");
			print(await revokeKey(config, name));
		},
	},
	"owners assign": {
		operands: ["TEAM"],
		options: ["sender", "ids", "all"],
		meaning:
			"give conversations an owner, also while the service runs: those without an owner whose first post came from a sender, those with the given ids, or with --all all that have none",
		failure: "The conversations cannot be assigned",
		async run(config, [team = ""], { sender, ids, all }) {
			const given = [sender, ids, all].filter((value) => value !== undefined);
			const [name, ...others] = sender ?? [];
			if (given.length !== 1 || others.length > 0)
				throw new UsageError("Give exactly one of --sender, --ids and --all");
			const { assignOwner } = await import("./owner-commands.ts");
			print(await assignOwner(config, team, { sender: name, ids: ids?.split(","), all }));
		},
	},
	reconcile: {
		operands: [],
		options: ["agent-server", "sender"],
		meaning:
			"fetch from an agent server what never arrived from it, also while the service runs; its session API key is in AGENT_SERVER_KEY; a sender is the name of the access key with which it posts, and can be given several times",
		failure: "The reconciliation failed",
		async run(config, _, { "agent-server": url, sender: senders = [] }) {
			if (url === undefined) throw new UsageError("Give the URL of the agent server with --agent-server");
			const { runReconcile } = await import("./reconcile-command.ts");
			const key = config.agentServerKey?.export().toString() ?? "";
			for (const line of await runReconcile(config, { url, key, senders }, (progress) =>
				process.stderr.write(`${progress}\n`),
			))
				print(line);
		},
	},
	compact: {
		operands: [],
		meaning:
			"compress the texts of events that are not compressed yet, and with SQLite return free pages to the file system, also while the service runs",
		failure: "The database cannot be compacted",
		async run(config) {
			const { compactStore } = await import("./space-command.ts");
			for (const line of await compactStore(config)) print(line);
		},
	},
	"search rebuild": {
		operands: [],
		meaning: "write the index of search anew from the stored events and titles, also while the service runs",
		failure: "The index cannot be written anew",
		async run(config) {
			const { rebuildSearch } = await import("./search-commands.ts");
			print(await rebuildSearch(config));
		},
	},
	"usage rebuild": {
		operands: [],
		meaning:
			"count the usage of all conversations anew from the stored updates and events, compare, and correct what differs, also while the service runs",
		failure: "The usage cannot be rebuilt",
		async run(config) {
			const { runUsageRebuild } = await import("./usage-command.ts");
			const progress = showProgress((total) => `${total} conversations`, "counted");
			for (const line of await runUsageRebuild(config, progress)) print(line);
		},
	},
	erase: {
		operands: ["ID…"],
		options: ["with-children", "older-than", "status", "owner", "execute"],
		meaning:
			"erase conversations for good, also while the service runs: those with the given ids, with --with-children also their children; or those without activity for a TIME such as 90d, with --status also in this status and with --owner of this owner, which are only listed unless --execute is given",
		failure: "The conversations cannot be erased",
		run: eraseConversations,
	},
};

async function eraseConversations(config: Config, ids: readonly string[], options: Values): Promise<void> {
	const { "older-than": age, "with-children": withChildren = false, status, owner, execute = false } = options;
	if ((ids.length === 0) === (age === undefined)) throw new UsageError("Give either ids or --older-than");
	const { eraseByIds, eraseByPolicy } = await import("./erase-commands.ts");
	if (age === undefined) {
		if (status !== undefined || owner !== undefined || execute)
			throw new UsageError("--status, --owner and --execute are only for --older-than");
		return print(await eraseByIds(config, ids, withChildren));
	}
	if (withChildren) throw new UsageError("--with-children is only for ids");
	const policy = { inactiveSince: new Date(Date.now() - durationOption("older-than", age)), status, owner };
	print(await eraseByPolicy(config, policy, !execute, showProgress(conversations, "erased")));
}

/** @throws Error when the database is not a SQLite file */
function sqlitePath(database: Database): string {
	if (database.engine === "sqlite") return database.path;
	throw new Error(
		"backup and restore are only for SQLite; for PostgreSQL use pg_dump and pg_restore, or export and import",
	);
}

/** Exit status for invalid arguments. */
const USAGE_STATUS = 2;

const optionNames = Object.keys(OPTION_VALUES).filter((name): name is OptionName => name in OPTION_VALUES);

/** Runs the command that is named in the arguments. */
async function runCommand(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
	const { values, positionals } = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
	if (values.help === true) return print(help());
	if (values.version === true) return print(packageJson().version);
	const [first = "serve", second = ""] = positionals;
	// A name has one word or two.
	const name = Object.hasOwn(COMMANDS, `${first} ${second}`) ? `${first} ${second}` : first;
	const operands = positionals.slice(name === first ? 1 : 2);
	const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
	if (command === undefined) throw new UsageError(`There is no command "${name}"`);
	const isForeign = optionNames.some((option) => values[option] !== undefined && !command.options?.includes(option));
	const takesMore = command.operands.at(-1)?.endsWith("…") === true;
	const isCounted = takesMore || operands.length === command.operands.length;
	if (!isCounted || isForeign) throw new UsageError(`Usage: ${usageOf(name, command)}`);
	const config = readConfig(environment);
	try {
		await command.run(config, operands, values);
	} catch (error) {
		if (error instanceof UsageError) throw error;
		throw new Error(command.failure, { cause: error });
	}
}

/** The error for invalid arguments. */
class UsageError extends Error {}

async function serve(config: Config): Promise<void> {
	const { fd, isTTY } = process.stdout;
	const output = new LogOutput(fd, lineFormat(config.logFormat, isTTY));
	const log = createLogger(config.logLevel, output);
	const signalled = firstSignal();
	// Loaded here, so that an error while loading these modules is reported like any other startup failure.
	const { startService } = await import("./server.ts");
	const { WEBHOOK_PATH } = await import("./transports/webhook/webhook.ts");
	const service = await startService(config, log, (keys) => showFirstKeys(keys, config, WEBHOOK_PATH));
	log.stopping(await signalled);
	// Exits when the stop hangs. No acknowledged data is lost, because it is on disk.
	const forcedExit = setTimeout(() => {
		log.unexpectedError("stop", new Error("The service has not stopped within DRAIN_SECONDS"));
		process.exit(1);
	}, config.drainSeconds * 1000);
	const status = await service.stop().then(
		() => 0,
		(error: unknown) => {
			log.unexpectedError("stop", error);
			log.sumUp();
			return 1;
		},
	);
	clearTimeout(forcedExit);
	await output.end(LOG_FLUSH_MILLISECONDS);
	process.exit(status);
}

/** Maximum time for which a stopped process tries to write its last log lines when the reader is slow. */
const LOG_FLUSH_MILLISECONDS = 500;

/** Time after the first signal in which further ones count as the same: `npm start` forwards Ctrl-C a second time. */
const SAME_SIGNAL_MILLISECONDS = 500;

/** Resolves with the first signal to stop, even if it arrives during startup. A later one ends the process at once. */
function firstSignal(): Promise<NodeJS.Signals> {
	const { promise, resolve } = Promise.withResolvers<NodeJS.Signals>();
	let first: number | undefined;
	for (const name of ["SIGTERM", "SIGINT"] as const)
		process.on(name, () => {
			first ??= performance.now();
			if (performance.now() - first > SAME_SIGNAL_MILLISECONDS) process.exit(1);
			resolve(name);
		});
	return promise;
}

/** Shows the new access keys. They cannot be shown again, because the service stores only their hashes. */
function showFirstKeys({ key, consoleKey, httpAddress }: FirstKeys, { tls, basePath }: Config, path: string): void {
	const url = `${tls === undefined ? "http" : "https"}://${formatAddress(httpAddress)}${basePath}`;
	const console =
		consoleKey === undefined
			? ""
			: `Open the console. This address has a key that can only read, and ends after 24 hours:

  ${url}/#key=${consoleKey}

`;
	process.stderr.write(`
ACCESS_KEYS is not set, so the service generated an access key. It is shown only once:

  ${key}

${console}Try it:

  curl -sS ${url}${path} -H 'X-Access-Token: ${key}' -H 'Content-Type: application/json' \\
    -d '{"id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","workspace":{"kind":"LocalWorkspace","working_dir":"/workspace"},"agent":{"kind":"ACPAgent","acp_command":["acp"]}}'

`);
}

async function migrate({ database }: Config): Promise<void> {
	if (database.engine === "sqlite") return print(`Nothing to do: serve creates and upgrades ${database.path} itself.`);
	const { from, to } = await migrateDatabase(database, { error: showError });
	if (from === to) print(`The schema already has version ${to}.`);
	else
		print(from === 0 ? `Created the schema with version ${to}.` : `Upgraded the schema from version ${from} to ${to}.`);
}

async function exportTo(file: string, options: Values, { database }: Config): Promise<void> {
	const [update, event] = [sequenceOption(options, "after-update"), sequenceOption(options, "after-event")];
	const isWhole = update === undefined && event === undefined;
	const withKeys = options.all === true;
	if (withKeys && !isWhole) throw new UsageError("--all is only for an export of the whole database");
	const after = isWhole ? undefined : { update: update ?? 0n, event: event ?? 0n };
	// Loaded here, because only these commands need them.
	const { exportLines } = await import("./store/export/export.ts");
	const { writeExport } = await import("./store/export/file.ts");
	await using source = await openExportSource(database, { error: showError });
	const { updates, events } = await source.ranges();
	await writeExport(exportLines(source, after, showProgress(rows, "exported"), withKeys), file);
	const of = isWhole ? "the whole database" : "what is new";
	const result = `${file} has ${of} up to update ${updates.newest} and event ${events.newest}.`;
	if (file !== "-") print(result);
}

/** @throws UsageError when the value is not a sequence */
function sequenceOption(options: Values, name: "after-update" | "after-event"): bigint | undefined {
	const value = options[name];
	if (value === undefined) return undefined;
	if (!/^\d{1,18}$/.test(value)) throw new UsageError(`--${name} must be a sequence, which is a number from 0 on`);
	return BigInt(value);
}

/** Milliseconds of the units of durations. */
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/**
 * Returns the milliseconds of a duration.
 *
 * @throws UsageError when the value is not one
 */
function durationOption(name: string, value: string): number {
	const [, count, unit = ""] = /^(\d{1,5})([mhdw])$/.exec(value) ?? [];
	if (count === undefined) throw new UsageError(`--${name} must be a duration such as 90d, 12h or 30m`);
	return Number(count) * (UNITS[unit] ?? 0);
}

/**
 * Returns the time that `--expires` names: after a duration from now, or at a date or a time in ISO 8601.
 *
 * @throws UsageError when the value is neither
 */
function expiryOption(value: string | undefined): Date | undefined {
	if (value === undefined) return undefined;
	const [, count, unit = ""] = /^(\d{1,5})([mhdw])$/.exec(value) ?? [];
	const isDate = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d))?$/.test(value);
	const time = count === undefined ? Date.parse(isDate ? value : "") : Date.now() + Number(count) * (UNITS[unit] ?? 0);
	if (Number.isNaN(time))
		throw new UsageError("--expires must be such as 90d, 12h or 30m, or a date or time such as 2030-01-31T12:00Z");
	return new Date(time);
}

async function importFrom(file: string, { database }: Config): Promise<void> {
	const { importStore } = await import("./store/export/import.ts");
	const { readExport } = await import("./store/export/file.ts");
	await using target = await openImportTarget(database, { error: showError });
	const [imported, verified] = [showProgress(rows, "imported"), showProgress(rows, "verified")];
	const { updates, events } = await importStore(readExport(file), target, imported, verified);
	print(`The database holds the same as ${file}, up to update ${updates.newest} and event ${events.newest}.`);
}

/** Reports a failure that does not end the program. */
function showError(fields: object, message: string): void {
	process.stderr.write(`${message}${"err" in fields ? `: ${reasonOf(fields.err)}` : ""}\n`);
}

function showConfig({ settings }: Config): void {
	const shown = (value = ""): string => (value === "" ? "none" : value);
	for (const { name, value, source } of settings) {
		const fallback = variables.find((known) => known.name === name)?.default;
		const origin = source === "default" || fallback === undefined ? source : `${source}; default: ${shown(fallback)}`;
		print(`${name} = ${shown(value)} (${origin})`);
	}
}

/** Returns the usage of a command: its name and arguments. */
function usageOf(name: string, { operands, options = [] }: Command): string {
	const taken = options.map((option) => {
		const value = OPTION_VALUES[option];
		return value === "" ? `[--${option}]` : `[--${option} ${value}]`;
	});
	return [name, ...operands, ...taken].join(" ");
}

function help(): string {
	const { name, description } = packageJson();
	const usages = Object.entries(COMMANDS).map(([command, of]) => ({
		usage: usageOf(command, of),
		meaning: of.meaning,
	}));
	const width = Math.max(...usages.map(({ usage }) => usage.length));
	const commands = usages.map(({ usage, meaning }) => `  ${usage.padEnd(width)}  ${meaning}`);
	const environment = variables.map(
		({ name, default: fallback, meaning }) => `  ${name} (default: ${fallback || "none"})\n      ${meaning}`,
	);
	return `${description}

Usage: ${name} [command]

Commands:
${commands.join("\n")}

Options:
  -h, --help    print this text
  --version     print the version

Environment variables:
${environment.join("\n")}`;
}

/** Writes a line to standard output. The program ends when the reader, such as `head`, has closed the pipe. */
function print(text: string): void {
	if (process.stdout.listenerCount("error") === 0) process.stdout.on("error", () => process.exit(1));
	process.stdout.write(`${text}\n`);
}

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const rows = (count: number): string => `${count} rows`;
const conversations = (count: number): string => `${count} conversations`;

/** Returns the message of an error and of its causes in one line. */
function reasonOf(error: unknown): string {
	if (!(error instanceof Error)) return String(error);
	const message = error.message.replaceAll(/\s*\n\s*/g, " ");
	return error.cause === undefined ? message : `${message}: ${reasonOf(error.cause)}`;
}

/** Returns whether an error means invalid arguments, which `parseArgs` or a command rejected. */
function isUsage(error: unknown): boolean {
	const code = error instanceof Error && "code" in error ? String(error.code) : "";
	return error instanceof UsageError || code.startsWith("ERR_PARSE_ARGS_");
}

/** Runs the program. Writes the reason of a failure to standard error, and exits. */
export async function runProgram(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
	try {
		await runCommand(args, environment);
	} catch (error) {
		const usage = isUsage(error);
		const text = error instanceof ConfigError ? error.message : `${reasonOf(error)}${usage ? "; see --help" : ""}`;
		process.stderr.write(`${text}\n`);
		process.exit(usage ? USAGE_STATUS : 1);
	}
}
