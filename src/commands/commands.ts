import type { Config } from "../config/config.ts";
import { variables } from "../config/variables.ts";
import { CALLS } from "./calls.ts";
import { backupTo, exportTo, importFrom, migrate, restoreFrom } from "./database.ts";
import { type Command, UsageError } from "./options.ts";
import { print } from "./output.ts";
import { serve } from "./serve.ts";

/** All commands by their names. */
export const COMMANDS: Readonly<Record<string, Command>> = {
	serve: {
		options: ["demo", "distribute"],
		meaning:
			"run the service until SIGTERM or SIGINT (the default); with --demo it shows invented conversations, in a database that is removed at the end; with --distribute as migrate does",
		run: (config, _, options) => serve(config, options),
	},
	config: {
		meaning: "print the effective value of every variable and where it comes from; secrets are masked",
		run: showConfig,
	},
	backup: {
		operands: ["FILE"],
		meaning: "copy the database into a new file",
		run: (config, [file = ""]) => backupTo(file, config),
	},
	restore: {
		operands: ["FILE"],
		meaning: "replace the database with a copy of a backup; the service must not run",
		run: (config, [file = ""]) => restoreFrom(file, config),
	},
	migrate: {
		options: ["print", "distribute"],
		meaning:
			"create or upgrade the tables of a PostgreSQL database; `serve` does this too; with --print only print the statements that create them; with --distribute also spread the tables over the servers of Citus",
		run: (config, _, options) => migrate(config, options),
	},
	export: {
		operands: ["FILE"],
		options: ["all", "after-update", "after-event", "format", "form", "filter"],
		meaning:
			"write all data into a new file of JSON lines; with --all also the hashes of access keys; with another option, only what came after that sequence; FILE is `-` for standard output, and is compressed if it ends in .zst or .gz. With --format trajectories, write a trajectory of each conversation, with --form messages as messages of a chat, and with --filter only of those that match, such as tag=team:a&has_error=false",
		run: (config, [file = ""], options) => exportTo(file, options, config),
	},
	import: {
		operands: ["FILE"],
		meaning: "read an export into an empty database of any engine; the service must not run",
		run: (config, [file = ""]) => importFrom(file, config),
	},
	...CALLS,
	reconcile: {
		options: ["agent-server", "sender"],
		meaning:
			"fetch from an agent server what never arrived from it; its session API key is in AGENT_SERVER_KEY; a sender is the name of the access key with which it posts, and can be given several times",
		run: async (...asked) => (await import("./runs.ts")).reconcile(...asked),
	},
	compact: {
		meaning:
			"compress the texts of events that are not compressed yet, and with SQLite return free pages to the file system",
		run: async (config) => (await import("./runs.ts")).compact(config),
	},
	"retention dry-run": {
		meaning: "count the conversations that each rule of RETENTION_RULES would remove now, and remove nothing",
		run: async (config) => (await import("./runs.ts")).countDue(config),
	},
	mcp: {
		options: ["url"],
		meaning:
			"serve agents over the Model Context Protocol on standard input and output; the conversations are those of the service at the URL, such as http://127.0.0.1:8080, with the access key in MCP_ACCESS_KEY",
		async run({ MCP_ACCESS_KEY: key }, _, { url = "" }) {
			const service = URL.parse(url);
			if (service === null || !/^https?:$/.test(service.protocol))
				throw new UsageError("Give the URL of the service with --url, such as http://127.0.0.1:8080");
			if (key === undefined) throw new UsageError("Give an access key of the service in MCP_ACCESS_KEY");
			const { serveMcpOverStdio } = await import("../mcp/mcp-server.ts");
			await serveMcpOverStdio(service, key.export().toString());
		},
	},
	erase: {
		operands: ["ID…"],
		options: ["with-children", "older-than", "status", "owner", "execute"],
		meaning:
			"erase conversations for good: those with the given ids, with --with-children also their children; or those without activity for a TIME such as 90d, with --status also in this status and with --owner of this owner, which are only listed unless --execute is given",
		run: async (...asked) => (await import("./runs.ts")).erase(...asked),
	},
};

function showConfig({ settings }: Config): void {
	const shown = (value = ""): string => (value === "" ? "none" : value);
	for (const { name, value, source } of settings) {
		const fallback = variables.find((known) => known.name === name)?.default;
		const origin = source === "default" || fallback === undefined ? source : `${source}; default: ${shown(fallback)}`;
		print(`${name} = ${shown(value)} (${origin})`);
	}
}
