#!/usr/bin/env -S MALLOC_MMAP_THRESHOLD_=1048576 MALLOC_TRIM_THRESHOLD_=67108864 node --no-allocation-site-pretenuring --no-parallel-scavenge --concurrent-marking-max-worker-num=1 --max-semi-space-size=16 --heap-growing-percent=100
import { parseArgs } from "node:util";
import { formatAddress } from "./config/address.ts";
import { type Config, ConfigError, databaseAt, readConfig } from "./config/config.ts";
import { MASK, variables } from "./config/variables.ts";
import { packageJson } from "./package-json.ts";
import { showProgress } from "./progress.ts";
import { copyStore } from "./store/copy.ts";
import { type Database, migrateDatabase, openCopySource, openCopyTarget } from "./store/open.ts";
import { maskPostgresUrl } from "./store/postgres/database-url.ts";
import { backupDatabase, restoreDatabase } from "./store/sqlite/backup.ts";
import { createLogger } from "./telemetry/log.ts";
import { lineFormat } from "./telemetry/log-format.ts";
import { LogOutput } from "./telemetry/log-output.ts";

/** A command of the program. */
interface Command {
	/** Names of the operands. */
	readonly operands: readonly string[];
	/** Names of the options. Each one is required and takes a value. */
	readonly options?: readonly OptionName[];
	readonly meaning: string;
	/** Message for an error of the command; the error follows as the reason. */
	readonly failure: string;
	/** @param values operands, followed by the values of the options */
	readonly run: (config: Config, values: readonly string[]) => Promise<void> | void;
}

const OPTIONS = {
	help: { type: "boolean", short: "h" },
	version: { type: "boolean" },
	from: { type: "string" },
	to: { type: "string" },
} as const;
type OptionName = "from" | "to";

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
	copy: {
		operands: [],
		options: ["from", "to"],
		meaning: "copy all data of a database into an empty one, or continue an interrupted copy; no service may run",
		failure: "The copy failed",
		run: copy,
	},
};

/** @throws Error when the database is not a SQLite file */
function sqlitePath(database: Database): string {
	if (database.engine === "sqlite") return database.path;
	throw new Error("backup and restore are only for SQLite; for PostgreSQL use pg_dump and pg_restore");
}

/** Exit status for invalid arguments. */
const USAGE_STATUS = 2;

/** Runs the command that is named in the arguments. */
async function main(args: readonly string[]): Promise<void> {
	const { values, positionals } = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
	if (values.help === true) return print(help());
	const [name = "serve", ...operands] = positionals;
	if (values.version === true) return print(packageJson().version);
	const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
	if (command === undefined) throw new UsageError(`There is no command "${name}"`);
	const { options = [] } = command;
	const given = options.flatMap((option) => values[option] ?? []);
	const count = (["from", "to"] as const).filter((option) => values[option] !== undefined).length;
	if (operands.length !== command.operands.length || given.length !== options.length || count !== options.length)
		throw new UsageError(`Usage: ${usageOf(name, command)}`);
	requireNode();
	const config = readConfig(process.env);
	try {
		await command.run(config, [...operands, ...given]);
	} catch (error) {
		if (error instanceof UsageError) throw error;
		throw new Error(command.failure, { cause: error });
	}
}

/** Oldest major version of Node.js that has everything that the program uses. */
const OLDEST_NODE = 26;

/** @throws Error when Node.js is too old. Without this check, a service would start and some requests would fail */
function requireNode(): void {
	const { node } = process.versions;
	if (Number.parseInt(node, 10) >= OLDEST_NODE) return;
	throw new Error(`The program needs Node.js ${OLDEST_NODE}, and this is Node.js ${node}`);
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
	const service = await startService(config, log, (key) => showFirstKey(key, config, WEBHOOK_PATH));
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

/** Shows a new access key. It cannot be shown again, because the service stores only its hash. */
function showFirstKey(key: string, { httpAddress, tls, basePath }: Config, path: string): void {
	const url = `${tls === undefined ? "http" : "https"}://${formatAddress(httpAddress)}${basePath}${path}`;
	process.stderr.write(`
ACCESS_KEYS is not set, so the service generated an access key. It is shown only once:

  ${key}

Try it:

  curl -sS ${url} -H 'X-Access-Token: ${key}' -H 'Content-Type: application/json' \\
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

async function copy(config: Config, [from = "", to = ""]: readonly string[]): Promise<void> {
	const [fromDatabase, toDatabase] = [databaseArgument("from", from, config), databaseArgument("to", to, config)];
	const log = { error: showError };
	await using source = await openCopySource(fromDatabase, log).catch(failedToOpen("source"));
	await using target = await openCopyTarget(toDatabase, log).catch(failedToOpen("target"));
	const steps = { copied: showProgress(entries, "copied"), compared: showProgress(entries, "compared") };
	const parts = await copyStore(source, target, (step, done, total) => steps[step](done, total));
	const [shownFrom, shownTo] = [from, to].map((url) => maskPostgresUrl(url, MASK));
	print(`${shownTo} holds the same data as ${shownFrom}. Entries of each kind, with their SHA-256:`);
	for (const { name, count, digest, damaged } of parts) {
		const unreadable = damaged === 0 ? "" : `; ${damaged} of them cannot be read in either database`;
		print(`${name}: ${count}, ${digest}${unreadable}`);
	}
}

/** Returns an error handler that adds which of the two databases could not be opened. */
function failedToOpen(which: string): (cause: unknown) => never {
	return (cause) => {
		throw new Error(`the ${which} cannot be opened`, { cause });
	};
}

/** @throws UsageError when the value of an option is not a valid database URL */
function databaseArgument(option: OptionName, url: string, config: Config): Database {
	try {
		return databaseAt(url, config);
	} catch (error) {
		throw error instanceof ConfigError ? new UsageError(`--${option}: ${error.mistakes.join("; ")}`) : error;
	}
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
	return [name, ...operands, ...options.map((option) => `--${option} URL`)].join(" ");
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
const entries = (count: number): string => `${count} entries`;

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

try {
	await main(process.argv.slice(2));
} catch (error) {
	const usage = isUsage(error);
	const text = error instanceof ConfigError ? error.message : `${reasonOf(error)}${usage ? "; see --help" : ""}`;
	process.stderr.write(`${text}\n`);
	process.exit(usage ? USAGE_STATUS : 1);
}
