import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";

const SRC = join(import.meta.dirname, "..", "src");

interface Import {
	/** Path of the importing file, relative to src. */
	readonly from: string;
	/** The imported file as a path relative to src, or the name of a package. */
	readonly to: string;
	/** Whether only types are imported, so that nothing is loaded at run time. */
	readonly typeOnly: boolean;
}

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
const texts = new Map(files.map((file) => [file, readFileSync(join(SRC, file), "utf8")]));
const imports = [...texts].flatMap(([file, text]) => importsOf(file, text));

function importsOf(file: string, text: string): Import[] {
	// Matches static imports and re-exports, and other strings that name a source file: import(), new URL().
	const named = text.matchAll(
		/^(?:import|export)\b(?<type> type\b)?[^;]*?\bfrom "(?<path>[^"]+)"|"(?<other>\.{1,2}\/[^"]+\.ts)"/gm,
	);
	return [...named].map(({ groups }) => {
		const path = groups?.path ?? groups?.other ?? "";
		const to = path.startsWith(".") ? relative(SRC, join(SRC, dirname(file), path)) : path;
		return { from: file, to, typeOnly: groups?.type !== undefined };
	});
}

/**
 * Lists the imports of a module that are not allowed. Its own files, packages, generated code, errors.ts,
 * memory.ts, userinfo.ts and the type of the log are always allowed.
 *
 * @param allowed matches the paths that the module may import in addition
 */
function forbiddenImports(folder: string, ...allowed: readonly RegExp[]): string[] {
	return imports
		.filter(({ from }) => from.startsWith(folder))
		.filter(({ to }) => to.endsWith(".ts") && !to.startsWith(folder))
		.filter(({ to }) => !["errors.ts", "memory.ts", "userinfo.ts"].includes(to))
		.filter(({ to, typeOnly }) => !(typeOnly && to === "telemetry/log.ts"))
		.filter(({ to }) => !allowed.some((pattern) => pattern.test(to)))
		.map(({ from, to }) => `${from} imports ${to}`);
}

describe("the modules of src import only what they may", () => {
	test("the scan finds the imports", () => {
		expect(imports).toContainEqual({ from: "commands/serve.ts", to: "server.ts", typeOnly: false });
		expect(imports).toContainEqual({ from: "record/record-format.ts", to: "errors.ts", typeOnly: true });
		expect(imports.length).toBeGreaterThan(200);
	});

	test("record imports no other module", () => {
		expect(forbiddenImports("record/")).toEqual([]);
	});

	test("conversations imports only record, events, the intake, the store's interface, access, usage, search and the log", () => {
		const known = [
			/^record\//,
			/^events\//,
			/^intake\/record-intake\.ts$/,
			/^store\/[^/]+$/,
			/^access\//,
			/^usage\//,
			/^search\//,
			/^telemetry\/log\.ts$/,
		];
		expect(forbiddenImports("conversations/", ...known)).toEqual([]);
	});

	test("store imports only threads, the times, costs, deltas and relations of records, the ledger of usage, and words", () => {
		const known = [
			/^threads\//,
			/^record\/json\/scalars\.ts$/,
			/^record\/stats\.ts$/,
			/^record\/record-delta\.ts$/,
			/^usage\//,
			/^search\/tokenizer\.ts$/,
		];
		expect(forbiddenImports("store/", ...known)).toEqual([]);
		// Each of the store's threads would load zod, which takes some 3 MB. Only commands load store/export/export.ts.
		const zod = imports.filter(({ from, to }) => from.startsWith("store/") && to === "zod");
		expect(zod.map(({ from }) => from)).toEqual(["store/export/export.ts"]);
		const loaders = imports.filter(
			({ from, to }) => /^store\/export\/export/.test(to) && !/^store\/export\//.test(from),
		);
		expect(new Set(loaders.map(({ from }) => from))).toEqual(new Set(["commands/database.ts"]));
	});

	test("events imports only record, the store's interface and rules of order, and the names of usage", () => {
		expect(forbiddenImports("events/", /^record\//, /^store\/[^/]+$/, /^usage\/names\.ts$/)).toEqual([]);
	});

	test("search imports only record, events and the store's interface", () => {
		expect(forbiddenImports("search/", /^record\//, /^events\//, /^store\/[^/]+$/)).toEqual([]);
	});

	test("usage imports only what stats of records say", () => {
		expect(forbiddenImports("usage/", /^record\/stats\.ts$/)).toEqual([]);
	});

	test("threads imports no other module", () => {
		expect(forbiddenImports("threads/")).toEqual([]);
	});

	test("intake imports only threads, record, events, the store's interface and the texts of search", () => {
		const known = [/^threads\//, /^record\//, /^events\//, /^store\/[^/]+$/, /^search\/event-texts\.ts$/];
		expect(forbiddenImports("intake/", ...known)).toEqual([]);
	});

	test("access imports only the store's interface", () => {
		expect(forbiddenImports("access/", /^store\/[^/]+$/)).toEqual([]);
	});

	test("config imports only scopes and keys, URLs, rules of retention, settings of brokers, and settings of the log and of OpenTelemetry", () => {
		const settings = /^telemetry\/(?:log|log-output|otel-settings)\.ts$/;
		const addresses = /^store\/database\.ts$/;
		const rules = /^conversations\/retention\.ts$/;
		const brokers = /^forward\/broker-settings\.ts$/;
		expect(forbiddenImports("config/", /^access\/keys\.ts$/, addresses, rules, brokers, settings)).toEqual([]);
	});

	test("reconcile imports neither a transport nor a store engine", () => {
		const known = [/^access\/keys\.ts$/, /^conversations\/ingest\//, /^events\//, /^record\//, /^store\/[^/]+\.ts$/];
		expect(forbiddenImports("reconcile/", ...known, /^forward\/http-sink\.ts$/)).toEqual([]);
	});

	test("forward imports neither a transport nor a store engine", () => {
		const known = [
			/^access\/named\.ts$/,
			/^conversations\/(?:conversation-reads\.ts$|read\/)/,
			/^record\//,
			/^store\/[^/]+\.ts$/,
		];
		expect(forbiddenImports("forward/", ...known)).toEqual([]);
	});

	test("budgets imports neither a transport nor a store engine", () => {
		const known = [
			/^access\/(?:audit|keys|named)\.ts$/,
			/^conversations\/read\//,
			/^forward\/(?:endpoint-worker|notices)\.ts$/,
			/^record\//,
			/^reconcile\/(?:agent-server|reconciler)\.ts$/,
			/^store\/[^/]+\.ts$/,
			/^usage\//,
		];
		expect(forbiddenImports("budgets/", ...known)).toEqual([]);
	});

	test("rpc imports neither a transport nor a store engine", () => {
		expect(imports.filter(({ from, to }) => from.startsWith("rpc/") && /^(transports|store\/\w+)\//.test(to))).toEqual(
			[],
		);
	});

	test("transports import no other transport except http", () => {
		const transport = (path: string) => /^transports\/([^/.]+)\//.exec(path)?.[1];
		const foreign = imports.filter(({ from, to }) => {
			const [own, other] = [transport(from), transport(to)];
			return own !== undefined && other !== undefined && other !== own && (own === "http" || other !== "http");
		});
		expect(foreign).toEqual([]);
	});

	test("only a store engine imports a database driver", () => {
		const drivers = imports.filter(({ to }) => to === "node:sqlite" || to === "sqlite" || to === "pg");
		expect(drivers.filter(({ from }) => !/^store\/\w+\//.test(from))).toEqual([]);
		expect(drivers).not.toEqual([]);
	});

	test("telemetry imports only the store's interface, threads and sums of costs, and beside it only the form of traces is OpenTelemetry's", () => {
		expect(forbiddenImports("telemetry/", /^store\/[^/]+$/, /^threads\//, /^record\/stats\.ts$/)).toEqual([]);
		const known = imports.filter(({ to }) => to.startsWith("@opentelemetry/"));
		expect(known.filter(({ from }) => !from.startsWith("telemetry/") && from !== "traces/otlp.ts")).toEqual([]);
		expect(known.filter(({ to }) => to.includes("exporter-trace")).map(({ from }) => from)).toEqual([
			"telemetry/otlp.ts",
		]);
		// The exporter is loaded only if traces are exported.
		const loaders = imports.filter(({ to, typeOnly }) => to === "telemetry/otlp.ts" && !typeOnly);
		expect(loaders.map(({ from }) => from)).toEqual(["telemetry/telemetry.ts"]);
		expect(texts.get("telemetry/telemetry.ts")).toContain('await import("./otlp.ts")');
	});

	test("mcp reads only through the JSON reads, only the composition knows it, and it is loaded when it is called", () => {
		const known = [/^record\//, /^transports\/http\/(?:body|router)\.ts$/, /^transports\/reads\/parameters\.ts$/];
		expect(forbiddenImports("mcp/", ...known, /^package-json\.ts$/)).toEqual([]);
		const importers = imports.filter(({ from, to }) => to.startsWith("mcp/") && !from.startsWith("mcp/"));
		expect(importers.map(({ from, to }) => `${from} imports ${to}`).sort()).toEqual([
			"commands/commands.ts imports mcp/mcp-server.ts",
			"server.ts imports mcp/mcp-route.ts",
		]);
		expect(texts.get("commands/commands.ts")).toContain('await import("../mcp/mcp-server.ts")');
		const sdk = imports.filter(({ to }) => to.startsWith("@modelcontextprotocol/"));
		expect(new Set(sdk.map(({ from }) => from))).toEqual(new Set(["mcp/mcp-server.ts"]));
		const loaders = imports.filter(({ to, typeOnly }) => to === "mcp/mcp-server.ts" && !typeOnly);
		expect(loaders.map(({ from }) => from).sort()).toEqual(["commands/commands.ts", "mcp/mcp-route.ts"]);
		expect(texts.get("mcp/mcp-route.ts")).toContain('await import("./mcp-server.ts")');
	});

	test("trajectories reads only what a caller may see, and only the composition and its command know it", () => {
		const known = [
			/^events\/event-parts\.ts$/,
			/^record\/(?:json\/|plan\.ts$)/,
			/^transports\/http\/router\.ts$/,
			/^transports\/reads\/parameters\.ts$/,
		];
		const reads = [/^conversations\/conversation-reads\.ts$/, /^conversations\/read\/filter\.ts$/];
		expect(forbiddenImports("trajectories/", ...known, ...reads)).toEqual([]);
		const importers = imports.filter(
			({ from, to }) => to.startsWith("trajectories/") && !from.startsWith("trajectories/"),
		);
		expect(new Set(importers.map(({ from }) => from))).toEqual(new Set(["commands/runs.ts", "server.ts"]));
	});

	test("traces reads all conversations, sends through forward, and only the composition and its command know it", () => {
		const known = [
			/^events\/event-parts\.ts$/,
			/^record\/(?:json\/|stats\.ts$)/,
			/^store\/[^/]+\.ts$/,
			/^conversations\/conversation-reads\.ts$/,
			/^forward\/(?:endpoint-worker|http-sink|tell)\.ts$/,
		];
		expect(forbiddenImports("traces/", ...known)).toEqual([]);
		const importers = imports.filter(({ from, to }) => to.startsWith("traces/") && !from.startsWith("traces/"));
		expect(new Set(importers.map(({ from }) => from))).toEqual(
			new Set(["commands/calls.ts", "make-parts.ts", "server.ts"]),
		);
	});

	test("the console imports only conditions of filters, sums of costs, periods and words of queries, which load neither Node.js modules nor zod", () => {
		const folder = join(SRC, "..", "console", "src");
		const own = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => /\.tsx?$/.test(file));
		const entries = own
			.flatMap((file) => importsOf(join("..", "console", "src", file), readFileSync(join(folder, file), "utf8")))
			.filter(({ to }) => to.endsWith(".ts") && !to.startsWith(".."));
		expect(new Set(entries.map(({ to }) => to))).toEqual(
			new Set([
				"conversations/read/filter.ts",
				"record/stats.ts",
				"search/match.ts",
				"search/query.ts",
				"store/condition.ts",
				"usage/periods.ts",
			]),
		);
		const reached = new Set(entries.map(({ to }) => to));
		for (const file of reached)
			for (const { to } of imports.filter(({ from, typeOnly }) => from === file && !typeOnly)) reached.add(to);
		const packages = [...reached].filter((to) => !to.endsWith(".ts") && !to.includes("gen/"));
		expect(packages.filter((name) => !name.startsWith("@bufbuild/protobuf"))).toEqual([]);
	});

	test("there are no import cycles, not even of types", () => {
		const left = new Set(files);
		// Removes a file when all files that it imports have been removed. The remaining files are on a cycle or import one.
		for (let removed = true; removed; ) {
			removed = false;
			for (const file of left) {
				if (imports.some(({ from, to }) => from === file && left.has(to))) continue;
				left.delete(file);
				removed = true;
			}
		}
		expect([...left]).toEqual([]);
	});

	test("only the command serve imports server.ts, only main.ts imports commands, and no file imports main.ts", () => {
		const importersOf = (file: string) => new Set(imports.filter(({ to }) => to === file).map(({ from }) => from));
		expect(importersOf("server.ts")).toEqual(new Set(["commands/serve.ts"]));
		const ofCommands = imports.filter(({ from, to }) => to.startsWith("commands/") && !from.startsWith("commands/"));
		expect(ofCommands.map(({ from, to }) => [from, to])).toEqual([["main.ts", "commands/program.ts"]]);
		expect(importersOf("main.ts")).toEqual(new Set());
	});

	test("main.ts imports nothing before it has checked the version of Node.js, which may not parse the rest", () => {
		expect(texts.get("main.ts")).not.toMatch(/^(import|export)\b/m);
	});

	test("the environment is read only once, in main.ts for config", () => {
		const readers = [...texts].filter(([, text]) => /\bprocess\.env\b|\benv\b.*from "node:process"/.test(text));
		expect(readers.map(([file]) => file)).toEqual(["main.ts"]);
		expect(texts.get("main.ts")?.match(/process\.env/g)).toHaveLength(1);
		expect(texts.get("main.ts")).toContain("runProgram(process.argv.slice(2), process.env)");
	});
});
