import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";

const SRC = join(import.meta.dirname, "..", "src");

interface Import {
	/** The importing file, from src. */
	readonly from: string;
	/** What it imports: a path from src, or a package. */
	readonly to: string;
	/** Whether only types are imported, which are gone when the program runs. */
	readonly typeOnly: boolean;
}

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
const texts = new Map(files.map((file) => [file, readFileSync(join(SRC, file), "utf8")]));
const imports = [...texts].flatMap(([file, text]) => importsOf(file, text));

function importsOf(file: string, text: string): Import[] {
	// Static imports and re-exports, and every other place that names a module of ours: import(), new URL().
	const named = text.matchAll(
		/^(?:import|export)\b(?<type> type\b)?[^;]*?\bfrom "(?<path>[^"]+)"|"(?<other>\.{1,2}\/[^"]+\.ts)"/gm,
	);
	return [...named].map(({ groups }) => {
		const path = groups?.path ?? groups?.other ?? "";
		const to = path.startsWith(".") ? relative(SRC, join(SRC, dirname(file), path)) : path;
		return { from: file, to, typeOnly: groups?.type !== undefined };
	});
}

/** Imports out of a folder that are neither of its own, packages, generated code, errors and memory, nor `allowed`. */
function strangers(folder: string, ...allowed: readonly RegExp[]): string[] {
	return imports
		.filter(({ from }) => from.startsWith(folder))
		.filter(({ to }) => to.endsWith(".ts") && !to.startsWith(folder))
		.filter(({ to }) => to !== "errors.ts" && to !== "memory.ts")
		.filter(({ to }) => !allowed.some((pattern) => pattern.test(to)))
		.map(({ from, to }) => `${from} imports ${to}`);
}

describe("the rooms of src keep to themselves", () => {
	test("the scan sees the imports", () => {
		expect(imports).toContainEqual({ from: "main.ts", to: "server.ts", typeOnly: false });
		expect(imports).toContainEqual({ from: "record/validation/record-limits.ts", to: "errors.ts", typeOnly: true });
		expect(imports.length).toBeGreaterThan(200);
	});

	test("record knows what a record is, and nothing of what is done with it", () => {
		expect(strangers("record/", /^protobuf\//)).toEqual([]);
	});

	test("protobuf encodes messages of any type, and knows none of them", () => {
		expect(strangers("protobuf/")).toEqual([]);
		expect(imports.filter(({ from, to }) => from.startsWith("protobuf/") && to.includes("gen/"))).toEqual([]);
	});

	test("conversations knows the record, the events, the store's interface and who asks", () => {
		const known = [/^record\//, /^events\//, /^store\/[^/]+$/, /^access\//, /^telemetry\/log\.ts$/];
		expect(strangers("conversations/", ...known)).toEqual([]);
	});

	test("a store knows the store's interface, times, deltas of records, and the threads that it runs on", () => {
		const known = [/^threads\//, /^record\/json\/scalars\.ts$/, /^record\/record-delta\.ts$/];
		expect(strangers("store/", ...known)).toEqual([]);
		// Each of the store's threads would load it, some 3 MB.
		expect(imports.filter(({ from, to }) => from.startsWith("store/") && to === "zod")).toEqual([]);
	});

	test("events knows the record, the store's interface and its rules of order", () => {
		expect(strangers("events/", /^record\//, /^store\/[^/]+$/)).toEqual([]);
	});

	test("threads carry requests for anyone, and know none of them", () => {
		expect(strangers("threads/")).toEqual([]);
	});

	test("the intake makes updates on a thread, and knows neither a transport nor a store engine", () => {
		const known = [/^threads\//, /^record\//, /^events\//, /^conversations\//, /^store\/[^/]+$/];
		expect(strangers("intake/", ...known)).toEqual([]);
	});

	test("access knows what a record may show, and nobody else", () => {
		expect(strangers("access/", /^record\//)).toEqual([]);
	});

	test("the RPCs know no transport and no store engine", () => {
		expect(imports.filter(({ from, to }) => from.startsWith("rpc/") && /^(transports|store\/\w+)\//.test(to))).toEqual(
			[],
		);
	});

	test("transports do not import each other; they share http and the form of a listener", () => {
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

	test("telemetry knows the store's interface and what threads tell, and is alone in knowing OpenTelemetry", () => {
		expect(strangers("telemetry/", /^store\/[^/]+$/, /^threads\//)).toEqual([]);
		const known = imports.filter(({ to }) => to.startsWith("@opentelemetry/"));
		expect(known.filter(({ from }) => !from.startsWith("telemetry/"))).toEqual([]);
		expect(known.filter(({ to }) => to.includes("exporter-trace")).map(({ from }) => from)).toEqual([
			"telemetry/otlp-tracing.ts",
		]);
		// It is loaded only when traces are wanted.
		const loaders = imports.filter(({ to, typeOnly }) => to === "telemetry/otlp-tracing.ts" && !typeOnly);
		expect(loaders.map(({ from }) => from)).toEqual(["telemetry/telemetry.ts"]);
		expect(texts.get("telemetry/telemetry.ts")).toContain('await import("./otlp-tracing.ts")');
	});

	test("no file imports itself through others, not even for types", () => {
		const left = new Set(files);
		// A file can go when all that it imports has gone. Those that stay import each other.
		for (let gone = true; gone; ) {
			gone = false;
			for (const file of left) {
				if (imports.some(({ from, to }) => from === file && left.has(to))) continue;
				left.delete(file);
				gone = true;
			}
		}
		expect([...left]).toEqual([]);
	});

	test("only the process entry and the composition root know everything", () => {
		const roots = imports.filter(({ to }) => to === "server.ts" || to === "main.ts");
		expect(new Set(roots.map(({ from }) => from))).toEqual(new Set(["main.ts"]));
	});

	test("the environment is read once, by main for config", () => {
		const readers = [...texts].filter(([, text]) => /\bprocess\.env\b|\benv\b.*from "node:process"/.test(text));
		expect(readers.map(([file]) => file)).toEqual(["main.ts"]);
		expect(texts.get("main.ts")?.match(/process\.env/g)).toHaveLength(1);
		expect(texts.get("main.ts")).toContain("readConfig(process.env)");
	});
});
