#!/usr/bin/env -S node --no-allocation-site-pretenuring --no-parallel-scavenge --concurrent-marking-max-worker-num=1 --max-semi-space-size=8 --max-large-page-pool-size=8 --heap-growing-percent=100
import { parseArgs } from "node:util";
import { type Config, ConfigError, formatAddress, readConfig, variables } from "./config.ts";
import { packageJson } from "./package-json.ts";
import type { Database } from "./store/open.ts";
import { backupDatabase, type OnProgress, restoreDatabase } from "./store/sqlite/backup.ts";
import { createLogger } from "./telemetry/log.ts";
import { lineFormat } from "./telemetry/log-format.ts";
import { LogOutput } from "./telemetry/log-output.ts";

/** A command of the program. */
interface Command {
	/** Names of its operands. */
	readonly operands: readonly string[];
	readonly meaning: string;
	/** What could not be done when it fails. */
	readonly failure: string;
	readonly run: (config: Config, operand: string) => Promise<void> | void;
}

const COMMANDS: Readonly<Record<string, Command>> = {
	serve: {
		operands: [],
		meaning: "run the service until SIGTERM or SIGINT (the default)",
		failure: "The service cannot start",
		run: serve,
	},
	config: {
		operands: [],
		meaning: "print every variable with its value in effect and where it comes from; secrets are masked",
		failure: "The configuration cannot be shown",
		run: showConfig,
	},
	backup: {
		operands: ["FILE"],
		meaning: "copy the database into a new file, also while the service runs",
		failure: "The backup failed",
		run: async ({ database }, file) => {
			const path = sqlitePath(database);
			const newest = await backupDatabase(path, file, showProgress());
			print(`${file} holds the database ${path} up to sequence ${newest}.`);
		},
	},
	restore: {
		operands: ["FILE"],
		meaning: "put the copy of a backup in the database's place, while the service does not run",
		failure: "The restore failed",
		run: async ({ database }, file) => {
			const path = sqlitePath(database);
			const { newest, former } = await restoreDatabase(path, file, showProgress());
			const kept = former === undefined ? "" : ` The former database is ${former}.`;
			print(`${path} is restored from ${file}, up to sequence ${newest}.${kept}`);
		},
	},
};

/** @throws Error when the database is another one than an SQLite file */
function sqlitePath(database: Database): string {
	if (database.engine === "sqlite") return database.path;
	throw new Error("backup and restore are for SQLite; PostgreSQL has pg_dump and pg_restore");
}

/** Exit status for arguments that the program does not take. */
const USAGE_STATUS = 2;

/** Runs the command that the arguments name. */
async function main(args: readonly string[]): Promise<void> {
	const options = { help: { type: "boolean", short: "h" }, version: { type: "boolean" } } as const;
	const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true });
	if (values.help === true) return print(help());
	const [name = "serve", ...operands] = positionals;
	if (values.version === true) return print(packageJson().version);
	const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
	if (command === undefined) throw new UsageError(`There is no command "${name}"`);
	if (operands.length !== command.operands.length)
		throw new UsageError(`The command is: ${[name, ...command.operands].join(" ")}`);
	const config = readConfig(process.env);
	try {
		await command.run(config, operands[0] ?? "");
	} catch (error) {
		throw new Error(command.failure, { cause: error });
	}
}

/** Arguments that the program does not take. */
class UsageError extends Error {}

async function serve(config: Config): Promise<void> {
	const { fd, isTTY } = process.stdout;
	const output = new LogOutput(fd, lineFormat(config.logFormat, isTTY));
	const log = createLogger(config.logLevel, output);
	const signalled = firstSignal();
	// Loaded here, so that what fails while modules are loaded is told as any other failure of the start.
	const { startService } = await import("./server.ts");
	const { WEBHOOK_PATH } = await import("./transports/webhook/webhook.ts");
	const service = await startService(config, log, (key) => showFirstKey(key, config, WEBHOOK_PATH));
	log.stopping(await signalled);
	// The last resort, for what does not let itself be stopped. What was acknowledged is on disk.
	const lastResort = setTimeout(() => {
		log.unexpectedError("stop", new Error("The service has not stopped in time"));
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
	clearTimeout(lastResort);
	await output.end(LAST_LINES_MILLISECONDS);
	process.exit(status);
}

/** How long a process that has stopped waits for a slow reader of its log. */
const LAST_LINES_MILLISECONDS = 500;

/** How long after the first signal another one is taken for the same: `npm start` passes Ctrl-C on a second time. */
const SAME_SIGNAL_MILLISECONDS = 500;

/** The first signal to stop, also when it comes during the start. A later one ends the process at once. */
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

/** Shows the key this once: the service keeps only its hash. */
function showFirstKey(key: string, { httpAddress, tls, basePath }: Config, path: string): void {
	const url = `${tls === undefined ? "http" : "https"}://${formatAddress(httpAddress)}${basePath}${path}`;
	process.stderr.write(`
No ACCESS_KEYS are configured, so this start made an access key. It is shown only now:

  ${key}

Try it:

  curl -sS ${url} -H 'X-Access-Token: ${key}' -H 'Content-Type: application/json' \\
    -d '{"id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","workspace":{"kind":"LocalWorkspace","working_dir":"/workspace"},"agent":{"kind":"ACPAgent","acp_command":["acp"]}}'

`);
}

function showConfig({ settings }: Config): void {
	const shown = (value = ""): string => (value === "" ? "none" : value);
	for (const { name, value, source } of settings) {
		const fallback = variables.find((known) => known.name === name)?.default;
		const origin = source === "default" ? "default" : `${source}; default: ${shown(fallback)}`;
		print(`${name} = ${shown(value)} (${origin})`);
	}
}

function help(): string {
	const { name, description } = packageJson();
	const commands = Object.entries(COMMANDS).map(
		([command, { operands, meaning }]) => `  ${[command, ...operands].join(" ").padEnd(14)}${meaning}`,
	);
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

function print(text: string): void {
	process.stdout.write(`${text}\n`);
}

/** Writes a line to standard error for each tenth that is copied. */
function showProgress(): OnProgress {
	let shown = -1;
	return (copied, total) => {
		const tenth = Math.floor((copied / total) * 10);
		if (tenth === shown) return;
		shown = tenth;
		process.stderr.write(`${tenth * 10} % of ${(total / 2 ** 20).toFixed(1)} MiB are copied\n`);
	};
}

/** What went wrong and why, in one line. */
function reasonOf(error: unknown): string {
	if (!(error instanceof Error)) return String(error);
	const message = error.message.replaceAll(/\s*\n\s*/g, " ");
	return error.cause === undefined ? message : `${message}: ${reasonOf(error.cause)}`;
}

/** Whether `parseArgs` refused the arguments. */
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
