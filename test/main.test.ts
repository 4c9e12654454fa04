import { execFile } from "node:child_process";
import { cpSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { delimiter, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import packageJson from "../package.json" with { type: "json" };
import { variables } from "../src/config/variables.ts";
import { APPLICATION_ID } from "../src/store/sqlite/schema.ts";
import { ServiceProcess } from "./support/child.ts";
import { postWebhook, WEBHOOK } from "./support/clients.ts";
import { record } from "./support/fixtures.ts";
import { RawHttp } from "./support/raw-http.ts";
import { KEY, testEnvironment } from "./support/service.ts";
import { ROOT, START_ARGUMENTS } from "./support/start-command.ts";
import { TempFolder } from "./support/temp.ts";

test("a second signal ends the service at once", async () => {
	using folder = new TempFolder();
	await using service = await ServiceProcess.start(folder.file("conversations.db"));
	// A request whose body never arrives would delay the stop until the drain time is over.
	using client = await new RawHttp(service).connected();
	await client.head({ "X-Access-Token": KEY, "Content-Length": "1000", Expect: "100-continue" }, WEBHOOK);
	expect((await client.response()).status).toBe(100);
	service.signal("SIGTERM");
	await service.logged((line) => line.event === "stopping");
	// npm forwards a signal a second time, so one that follows immediately counts as the same signal.
	await wait(600);
	service.signal("SIGINT");
	expect(await service.exit()).toEqual({ code: 1, signal: null });
	expect(service.output.stdout).not.toContain('"event":"stopped"');
});

/** Runs the program by a link such as package managers make for `bin`, with the Node.js that runs the tests. */
async function runBin(env: Readonly<Record<string, string>>, ...args: readonly string[]) {
	using folder = new TempFolder();
	const [[name, path] = ["", ""]] = Object.entries(packageJson.bin);
	symlinkSync(join(ROOT, path), folder.file(name));
	const PATH = [dirname(process.execPath), "/usr/bin", "/bin"].join(delimiter);
	return await promisify(execFile)(folder.file(name), args, { env: { PATH, ...env } });
}

describe("the program", () => {
	test.skipIf(process.platform !== "linux")(
		"runs the service with the V8 options and the allocator's settings, and keeps arguments and variables",
		async () => {
			using folder = new TempFolder();
			await using service = await ServiceProcess.start(
				folder.file("conversations.db"),
				{ MALLOC_TRIM_THRESHOLD_: "1048576" },
				["--stack-trace-limit=5", ...START_ARGUMENTS, "serve"],
			);
			const parts = (file: string) => readFileSync(`/proc/${service.pid}/${file}`, "utf8").split("\0");
			expect(parts("cmdline").slice(1, -1)).toEqual([
				"--stack-trace-limit=5",
				"--no-allocation-site-pretenuring",
				"--heap-growing-percent=100",
				"--invocation-count-for-maglev=100",
				"--invocation-count-for-turbofan=500",
				join(ROOT, "dist/main.js"),
				"serve",
			]);
			const allocator = parts("environ").filter((variable) => variable.startsWith("MALLOC_"));
			expect(allocator.toSorted()).toEqual(["MALLOC_MMAP_THRESHOLD_=1048576", "MALLOC_TRIM_THRESHOLD_=1048576"]);
		},
	);

	test("prints its version, and its commands and variables as help", async () => {
		expect(await runBin({}, "--version")).toEqual({ stdout: `${packageJson.version}\n`, stderr: "" });
		const { stdout } = await runBin({}, "--help");
		const exporting =
			"export FILE [--all] [--after-update N] [--after-event N] [--format FORMAT] [--form FORM] [--filter QUERY]";
		for (const command of ["serve", "config", "backup FILE", "restore FILE", "migrate", exporting, "import FILE"])
			expect(stdout).toContain(`\n  ${command} `);
		for (const { name, default: fallback, meaning } of variables)
			expect(stdout).toContain(`\n  ${name} (default: ${fallback || "none"})\n      ${meaning}\n`);
	});

	test("refuses a version of Node.js that lacks what it uses", async () => {
		const older = "Object.defineProperty(process.versions, 'node', { value: '24.21.0' })";
		const args = ["--import", `data:text/javascript,${older}`, ...START_ARGUMENTS, "config"];
		await expect(promisify(execFile)(process.execPath, args, { cwd: ROOT, env: {} })).rejects.toMatchObject({
			code: 1,
			stdout: "",
			stderr: "The program needs Node.js 26, and this is Node.js 24.21.0; npx adds it with -p node@26\n",
		});
	});

	test("prints the effective configuration without secrets", async () => {
		const env = {
			LOG_LEVEL: "debug",
			ACCESS_KEYS: `sender:${KEY}:ingest`,
			ENCRYPTION_KEY: "A".repeat(43).concat("="),
			OTEL_SERVICE_NAME: "bridge",
			OTEL_BSP_SCHEDULE_DELAY: "1",
			OTEL_EXPORTER_OTLP_HEADERS: "api-key=canary",
			OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318",
			OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "https://user:canary@example.com/v1/traces",
		};
		const { stdout, stderr } = await runBin(env, "config");
		expect(stderr).toBe("");
		const lines = stdout.split("\n");
		expect(lines.filter((line) => !line.endsWith(" (default)"))).toEqual([
			"ACCESS_KEYS = sender:**********:ingest (environment; default: none)",
			"LOG_LEVEL = debug (environment; default: info)",
			"ENCRYPTION_KEY = ********** (environment; default: none)",
			"OTEL_EXPORTER_OTLP_ENDPOINT = http://127.0.0.1:4318 (environment)",
			"OTEL_EXPORTER_OTLP_HEADERS = ********** (environment)",
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = https://example.com/v1/traces (and **********) (environment)",
			"OTEL_SERVICE_NAME = bridge (environment)",
			"",
		]);
		expect(lines.filter((line) => line.endsWith(" (default)"))).toEqual(
			variables
				.filter(({ name }) => !(name in env))
				.map(({ name, default: fallback }) => `${name} = ${fallback || "none"} (default)`),
		);
	});

	test("lists all errors in the configuration, without the values of keys, and ends with code 1", async () => {
		const env = { HTTP_ADDRESS: "x", LOG_LEVEL: "loud", ACCESS_KEYS: "a:canary-of-16-chars:b" };
		const { code, stderr } = await ServiceProcess.run(env);
		expect(code).toBe(1);
		expect(stderr.match(/^ {2}[A-Z_]+(?=:)/gm)).toEqual(["  HTTP_ADDRESS", "  ACCESS_KEYS", "  LOG_LEVEL"]);
		expect(stderr).not.toContain("canary");
	});

	test.each([
		[["start"], 'There is no command "start"; see --help'],
		[["backup"], "Usage: backup FILE; see --help"],
		[["serve", "now"], "Usage: serve [--demo] [--distribute]; see --help"],
		[
			["export", "a", "b"],
			"Usage: export FILE [--all] [--after-update N] [--after-event N] [--format FORMAT] [--form FORM] [--filter QUERY]; see --help",
		],
		[["export", "a", "--after-update"], /^Option '--after-update <value>' argument missing; see --help$/],
		[
			["export", "a", "--after-event", "1.5"],
			"--after-event must be a sequence, which is a number from 0 on; see --help",
		],
		[["import", "a", "--after-update", "1"], "Usage: import FILE; see --help"],
		[["keys"], 'There is no command "keys"; see --help'],
		[["keys", "add"], "Usage: keys add NAME [--scope SCOPE+SCOPE] [--owner TEAM] [--expires TIME]; see --help"],
		[["keys", "add", "a", "--expires", "soon"], /^--expires must be such as 90d, .*; see --help$/],
		[["export", "-", "--all", "--after-event", "1"], "--all is only for an export of the whole database; see --help"],
		[["--verbose"], /^Unknown option '--verbose'.*; see --help$/],
	])("refuses the arguments %j", async (args, line) => {
		const { code, stdout, stderr } = await ServiceProcess.run({}, ...args);
		expect({ code, stdout, line: stderr.slice(0, -1) }).toEqual({
			code: 2,
			stdout: "",
			line: line instanceof RegExp ? expect.stringMatching(line) : line,
		});
	});
});

describe("a start that fails", () => {
	const database = (sql: string) => (path: string) => {
		using file = new DatabaseSync(path);
		file.exec(sql);
	};

	test.each([
		[
			"a newer database",
			database(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = 1000`),
			/the database has schema version 1000, written by a newer release/,
		],
		["a database of another program", database("CREATE TABLE t (a)"), /the file is a database of another program/],
		["a text file", (path: string) => writeFileSync(path, "text ".repeat(1000)), /file is not a database/],
	])("because of %s says so in one line and shows no first key", async (_, prepare, reason) => {
		using folder = new TempFolder();
		const path = folder.file("conversations.db");
		prepare(path);
		const { code, stderr } = await ServiceProcess.run({ ...testEnvironment(path), ACCESS_KEYS: "" });
		expect(code).toBe(1);
		expect(stderr).toMatch(/^The service cannot start: .+\n$/);
		expect(stderr).toMatch(reason);
	});

	test("because another service uses the database says so in one line", async () => {
		using folder = new TempFolder();
		const path = folder.file("conversations.db");
		await using _service = await ServiceProcess.start(path);
		const reason = `the store is locked by another process: another process has the database ${path} open`;
		expect(await ServiceProcess.run({ ...testEnvironment(path), LOG_LEVEL: "silent" })).toEqual({
			code: 1,
			stdout: "",
			stderr: `The service cannot start: ${reason}\n`,
		});
	});

	test.each(["HTTP_ADDRESS", "GRPC_ADDRESS"])(
		"because another service listens at %s says so in one line",
		async (variable) => {
			using folder = new TempFolder();
			await using other = await ServiceProcess.start(folder.file("other.db"));
			const address = variable === "HTTP_ADDRESS" ? new URL(other.http).host : other.grpc;
			const env = { ...testEnvironment(folder.file("conversations.db")), [variable]: address, LOG_LEVEL: "silent" };
			expect(await ServiceProcess.run(env)).toEqual({
				code: 1,
				stdout: "",
				stderr: `The service cannot start: listen EADDRINUSE: address already in use ${address}\n`,
			});
		},
	);

	test.each([
		["a store thread that cannot be loaded", "store/sqlite/writer.js", /: the store failed: .*writer\.js/],
		["a missing module", "server.js", /: Cannot find module .*server\.js/],
		["an invalid plan of the record", "record/plan.js", /: the plan is refused$/m],
	])("because of %s says so in one line and shows no first key", async (_, module, reason) => {
		using folder = new TempFolder();
		for (const part of ["dist", "gen", "package.json"])
			cpSync(join(ROOT, part), folder.file(part), { recursive: true });
		symlinkSync(join(ROOT, "node_modules"), folder.file("node_modules"));
		const file = folder.file(join("dist", module));
		if (module.startsWith("record/")) {
			const text = readFileSync(file, "utf8");
			writeFileSync(
				file,
				text.replace(/export function planMessage\(.*\{/, "$& throw new Error('the plan is refused');"),
			);
		} else rmSync(file);
		const path = folder.file("conversations.db");
		const program = [...START_ARGUMENTS.slice(0, -1), folder.file("dist/main.js")];
		const failed = promisify(execFile)(process.execPath, program, {
			env: { ...testEnvironment(path), ACCESS_KEYS: "", LOG_LEVEL: "silent" },
		});
		await expect(failed).rejects.toMatchObject({
			code: 1,
			stderr: expect.stringMatching(/^The service cannot start: .+\n$/),
		});
		await expect(failed).rejects.toMatchObject({ stderr: expect.stringMatching(reason) });
	});
});

test("the first start that succeeds creates a key, shows it once and stores only its hash", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const taken = createServer();
	await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
	const address = taken.address();
	const port = typeof address === "object" ? address?.port : undefined;
	const env = { ...testEnvironment(database), ACCESS_KEYS: "", GRPC_ADDRESS: `127.0.0.1:${port}` };
	const { code, stderr } = await ServiceProcess.run(env);
	expect(code).toBe(1);
	expect(stderr).toMatch(/^The service cannot start: .+\n$/);
	taken.close();
	const post = async (to: ServiceProcess, by: string) => (await postWebhook(to, by, JSON.stringify(record()))).status;
	let key = "";
	{
		await using service = await ServiceProcess.start(database, { ACCESS_KEYS: "" });
		// Standard error may arrive after the lines of the log.
		await expect.poll(() => service.output.stderr).toContain("curl -sS ");
		key = /^ {2}([\w-]{43})$/m.exec(service.output.stderr)?.[1] ?? "";
		expect(service.output.stderr).toContain(`-H 'X-Access-Token: ${key}'`);
		expect(service.output.stdout).not.toContain(key);
		expect([await post(service, key), await post(service, `${key}x`)]).toEqual([200, 401]);
		for (const contents of folder.contents().values()) expect(contents.includes(key)).toBe(false);

		const [, console, consoleKey = ""] = /^ {2}(http:\S+\/)#key=([\w-]{43})$/m.exec(service.output.stderr) ?? [];
		expect(console).toBe(`${service.http}/`);
		const call = (method: string) =>
			fetch(`${service.http}/conversations.v1.${method}`, {
				method: "POST",
				headers: { "Content-Type": "application/json", "X-Access-Token": consoleKey },
				body: "{}",
			});
		expect(await (await call("ServiceInfoService/GetServiceInfo")).json()).toMatchObject({
			caller: "console",
			callerScopes: ["read"],
		});
		expect((await call("AccessKeyService/ListAccessKeys")).status).toBe(403);
		service.signal("SIGTERM");
		await service.exit();
	}
	await using again = await ServiceProcess.start(database, { ACCESS_KEYS: "" });
	expect(again.output.stderr).toBe("");
	expect(await post(again, key)).toBe(200);
});
