import type { Config } from "../config/config.ts";
import { variables } from "../config/variables.ts";
import { showProgress } from "../progress.ts";
import type { BudgetAction } from "./budgets.ts";
import { backupTo, exportTo, importFrom, migrate, restoreFrom } from "./database.ts";
import type { EndpointAction } from "./endpoints.ts";
import { durationOption, expiryOption, type OptionName, UsageError, type Values } from "./options.ts";
import { conversations, print } from "./output.ts";
import { serve } from "./serve.ts";

/** A command of the program. */
export interface Command {
	/** Names of the operands. The last one may be left out or repeated if its name ends in `…`. */
	readonly operands: readonly string[];
	/** Names of the options that it takes. */
	readonly options?: readonly OptionName[];
	readonly meaning: string;
	/** Message for an error of the command; the error follows as the reason. */
	readonly failure: string;
	readonly run: (config: Config, operands: readonly string[], options: Values) => Promise<void> | void;
}

/** All commands by their names. */
export const COMMANDS: Readonly<Record<string, Command>> = {
	serve: {
		operands: [],
		options: ["demo", "distribute"],
		meaning:
			"run the service until SIGTERM or SIGINT (the default); with --demo it shows invented conversations, in a database that is removed at the end; with --distribute as migrate does",
		failure: "The service cannot start",
		run: (config, _, options) => serve(config, options),
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
		run: (config, [file = ""]) => backupTo(file, config),
	},
	restore: {
		operands: ["FILE"],
		meaning: "replace the database with a copy of a backup; the service must not run",
		failure: "The restore failed",
		run: (config, [file = ""]) => restoreFrom(file, config),
	},
	migrate: {
		operands: [],
		options: ["print", "distribute"],
		meaning:
			"create or upgrade the tables of a PostgreSQL database; `serve` does this too; with --print only print the statements that create them; with --distribute also spread the tables over the servers of Citus",
		failure: "The migration failed",
		run: (config, _, options) => migrate(config, options),
	},
	export: {
		operands: ["FILE"],
		options: ["all", "after-update", "after-event", "format", "form", "filter"],
		meaning:
			"write all data into a new file of JSON lines, also while the service runs; with --all also the hashes of access keys; with another option, only what came after that sequence; FILE is `-` for standard output, and is compressed if it ends in .zst or .gz. With --format trajectories, write a trajectory of each conversation, with --form messages as messages of a chat, and with --filter only of those that match, such as tag=team:a&has_error=false",
		failure: "The export failed",
		run: (config, [file = ""], options) => exportTo(file, options, config),
	},
	import: {
		operands: ["FILE"],
		meaning: "read an export into an empty database of any engine",
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
			const { addKey } = await import("./access.ts");
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
			const { listKeys } = await import("./access.ts");
			for (const line of await listKeys(config)) print(line);
		},
	},
	"keys revoke": {
		operands: ["NAME"],
		meaning: "end an access key for good, also while the service runs",
		failure: "The key cannot be revoked",
		async run(config, [name = ""]) {
			const { revokeKey } = await import("./access.ts");
			print(await revokeKey(config, name));
		},
	},
	"owners assign": {
		operands: ["TEAM"],
		options: ["sender", "ids", "no-sender", "filter", "all"],
		meaning:
			"give conversations an owner, also while the service runs: those without an owner whose first post came from a sender, those with the given ids, with --no-sender those without an owner that nobody is known to have posted (with --filter only those that match, such as tag=team:a&created_to=2026-01-01T00:00:00Z), or with --all all that have none",
		failure: "The conversations cannot be assigned",
		async run(config, [team = ""], { sender, ids, "no-sender": noSender, filter = "", all }) {
			const given = [sender, ids, noSender, all].filter((value) => value !== undefined);
			const [name, ...others] = sender ?? [];
			if (given.length !== 1 || others.length > 0)
				throw new UsageError("Give exactly one of --sender, --ids, --no-sender and --all");
			if (filter !== "" && noSender === undefined) throw new UsageError("--filter is only for --no-sender");
			const { assignOwner } = await import("./access.ts");
			const withoutSender = noSender === undefined ? undefined : filter;
			for (const line of await assignOwner(config, team, { sender: name, ids: ids?.split(","), withoutSender, all }))
				print(line);
		},
	},
	"endpoints list": endpoints("list", [], [], "print all endpoints, to which the service sends what happens"),
	"endpoints show": endpoints("show", ["NAME"], ["owner"], "print an endpoint"),
	"endpoints create": endpoints(
		"create",
		["NAME"],
		["url", "changes", "filter", "form", "include", "owner"],
		"create an endpoint and print its secret; it is told of changes such as FINISHED,FAILED, with --filter only of conversations that match, such as tag=team:a",
	),
	"endpoints pause": endpoints("pause", ["NAME"], ["owner"], "send nothing to an endpoint until it is resumed"),
	"endpoints resume": endpoints(
		"resume",
		["NAME"],
		["from", "owner"],
		"send again to an endpoint that is paused or disabled, from its position or with --from now",
	),
	"endpoints test": endpoints("test", ["NAME"], ["owner"], "send a test to an endpoint"),
	"endpoints rotate-secret": endpoints(
		"rotate-secret",
		["NAME"],
		["owner"],
		"give an endpoint a new secret, and print it",
	),
	"endpoints replay": endpoints(
		"replay",
		["NAME"],
		["from", "to", "owner"],
		"send the updates from one sequence to another again",
	),
	"endpoints deliveries": endpoints(
		"deliveries",
		["NAME"],
		["status", "owner"],
		"print the newest 100 deliveries of an endpoint, with --status only those that are waiting, delivered, failed, skipped or lost",
	),
	"endpoints retry": endpoints("retry", ["NAME", "ID"], ["owner"], "send a delivery again"),
	"endpoints delete": endpoints("delete", ["NAME"], ["owner"], "remove an endpoint with its deliveries"),
	"budgets list": budgets("list", [], [], "print all budgets with what is spent of them"),
	"budgets show": budgets("show", ["NAME"], ["owner"], "print a budget with the conversations that spent the most"),
	"budgets create": budgets(
		"create",
		["NAME", "SETTING=VALUE…"],
		["filter", "owner"],
		"create a budget with settings such as amount=200 period=week thresholds=0.8,1, with --filter only of conversations that match, such as tag=team:a",
	),
	"budgets update": budgets(
		"update",
		["NAME", "SETTING=VALUE…"],
		["filter", "owner"],
		"change settings of a budget, such as amount=300; without a value, a setting gets its default",
	),
	"budgets delete": budgets("delete", ["NAME"], ["owner"], "remove a budget"),
	reconcile: {
		operands: [],
		options: ["agent-server", "sender"],
		meaning:
			"fetch from an agent server what never arrived from it, also while the service runs; its session API key is in AGENT_SERVER_KEY; a sender is the name of the access key with which it posts, and can be given several times",
		failure: "The reconciliation failed",
		async run(config, _, { "agent-server": url, sender: senders = [] }) {
			if (url === undefined) throw new UsageError("Give the URL of the agent server with --agent-server");
			const { runReconcile } = await import("./reconcile.ts");
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
			const { compactStore } = await import("./maintenance.ts");
			for (const line of await compactStore(config)) print(line);
		},
	},
	"retention dry-run": {
		operands: [],
		meaning:
			"count the conversations that each rule of RETENTION_RULES would remove now, and remove nothing, also while the service runs",
		failure: "The conversations cannot be counted",
		async run(config) {
			const { countDue } = await import("./maintenance.ts");
			for (const line of await countDue(config)) print(line);
		},
	},
	"views reset": {
		operands: [],
		meaning:
			"derive anew what lists, counts and searches of conversations read, also while the service runs; for some time they get a 503",
		failure: "The views cannot be derived anew",
		async run(config) {
			const { resetViews } = await import("./maintenance.ts");
			print(await resetViews(config));
		},
	},
	"search rebuild": {
		operands: [],
		meaning: "write the index of search anew from the stored events and titles, also while the service runs",
		failure: "The index cannot be written anew",
		async run(config) {
			const { rebuildSearch } = await import("./maintenance.ts");
			print(await rebuildSearch(config));
		},
	},
	"usage rebuild": {
		operands: [],
		meaning:
			"count the usage of all conversations anew from the stored updates and events, compare, and correct what differs, also while the service runs",
		failure: "The usage cannot be rebuilt",
		async run(config) {
			const { runUsageRebuild } = await import("./maintenance.ts");
			const progress = showProgress((total) => `${total} conversations`, "counted");
			for (const line of await runUsageRebuild(config, progress)) print(line);
		},
	},
	traces: {
		operands: [],
		options: ["from", "to"],
		meaning:
			"send the runs that ended with the updates from one sequence to another again to TRACES_OTLP_ENDPOINT, also while the service runs; at most 10000 updates",
		failure: "The traces cannot be sent",
		async run(config, _, options) {
			const { TRACES_ENDPOINT } = await import("../traces/follow.ts");
			await aboutEndpoints(config, "replay", [TRACES_ENDPOINT], options);
		},
	},
	mcp: {
		operands: [],
		options: ["url"],
		meaning:
			"serve agents over the Model Context Protocol on standard input and output; the conversations are those of the service at the URL, such as http://127.0.0.1:8080, with the access key in MCP_ACCESS_KEY",
		failure: "The Model Context Protocol cannot be served",
		async run({ mcpKey }, _, { url = "" }) {
			const service = URL.parse(url);
			if (service === null || !/^https?:$/.test(service.protocol))
				throw new UsageError("Give the URL of the service with --url, such as http://127.0.0.1:8080");
			if (mcpKey === undefined) throw new UsageError("Give an access key of the service in MCP_ACCESS_KEY");
			const { serveMcpOverStdio } = await import("../mcp/stdio.ts");
			await serveMcpOverStdio(service, mcpKey.export().toString());
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

/** Returns a command about endpoints. */
function endpoints(
	action: EndpointAction,
	operands: readonly string[],
	options: readonly OptionName[],
	meaning: string,
): Command {
	return {
		...{ operands, options, meaning: `${meaning}, also while the service runs` },
		failure: `The command endpoints ${action} failed`,
		run: (config, names, values) => aboutEndpoints(config, action, names, values),
	};
}

/** Returns a command about budgets. */
function budgets(
	action: BudgetAction,
	operands: readonly string[],
	options: readonly OptionName[],
	meaning: string,
): Command {
	return {
		...{ operands, options, meaning: `${meaning}, also while the service runs` },
		failure: `The command budgets ${action} failed`,
		async run(config, names, values) {
			const { runBudgets } = await import("./budgets.ts");
			for (const line of await runBudgets(config, action, names, values)) print(line);
		},
	};
}

async function aboutEndpoints(
	config: Config,
	action: EndpointAction,
	names: readonly string[],
	options: Values,
): Promise<void> {
	const { runEndpoints } = await import("./endpoints.ts");
	const { lines, note } = await runEndpoints(config, action, names, options);
	if (note !== undefined) process.stderr.write(`${note}\n`);
	for (const line of lines) print(line);
}

async function eraseConversations(config: Config, ids: readonly string[], options: Values): Promise<void> {
	const { "older-than": age, "with-children": withChildren = false, status, owner, execute = false } = options;
	if ((ids.length === 0) === (age === undefined)) throw new UsageError("Give either ids or --older-than");
	const { eraseByIds, eraseByPolicy } = await import("./erase.ts");
	if (age === undefined) {
		if (status !== undefined || owner !== undefined || execute)
			throw new UsageError("--status, --owner and --execute are only for --older-than");
		return print(await eraseByIds(config, ids, withChildren));
	}
	if (withChildren) throw new UsageError("--with-children is only for ids");
	const policy = { inactiveSince: new Date(Date.now() - durationOption("older-than", age)), status, owner };
	print(await eraseByPolicy(config, policy, !execute, showProgress(conversations, "erased")));
}

/** The command `config`. */
function showConfig({ settings }: Config): void {
	const shown = (value = ""): string => (value === "" ? "none" : value);
	for (const { name, value, source } of settings) {
		const fallback = variables.find((known) => known.name === name)?.default;
		const origin = source === "default" || fallback === undefined ? source : `${source}; default: ${shown(fallback)}`;
		print(`${name} = ${shown(value)} (${origin})`);
	}
}
