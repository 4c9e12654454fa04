import { execFile } from "node:child_process";
import { copyFileSync, globSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import clientPackage from "../clients/typescript/package.json" with { type: "json" };
import { object } from "./support/fixtures.ts";
import { KEY, startTestService } from "./support/service.ts";
import { ROOT } from "./support/start-command.ts";
import { TempFolder } from "./support/temp.ts";

const run = promisify(execFile);
const INSTALL_TIMEOUT = 180_000;
/** Project that depends only on the packed client and the oldest Node.js that the client supports. */
const project = new TempFolder("disk");

beforeAll(async () => {
	const packed = await run("npm", ["pack", "--json", "--pack-destination", project.path], {
		cwd: join(ROOT, "clients", "typescript"),
	});
	const [tarball] = globSync("*.tgz", { cwd: project.path });
	expect(packed.stdout).toContain(String(tarball));
	writeFileSync(project.file("package.json"), JSON.stringify({ private: true, type: "module" }));
	const oldest = `node-${process.platform}-${process.arch}@22.23.3`;
	await run("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline", `./${tarball}`, oldest], {
		cwd: project.path,
	});
	copyFileSync(join(ROOT, "clients", "typescript", "example.ts"), project.file("example.ts"));
}, INSTALL_TIMEOUT);

afterAll(() => project[Symbol.dispose]());

test("the package contains the client and the generated code that it needs, and nothing else", () => {
	const folder = project.file("node_modules/conversation-update-webhook-client");
	const files = globSync("**/*.*", { cwd: folder }).filter((path) => !path.startsWith("gen/"));
	expect(files.sort()).toEqual(["README.md", "dist/client.d.ts", "dist/client.js", "package.json"]);
	const generated = globSync("gen/**/*.*", { cwd: folder });
	const needed = globSync("gen/{conversations,google}/**/*_pb.*", { cwd: ROOT });
	expect(generated.sort()).toEqual(needed.sort());
});

test(
	"the example compiles with the package's types, and runs on the oldest supported Node.js and on this one",
	async () => {
		const options = { strict: true, module: "nodenext", target: "es2023", lib: ["es2023", "dom"], types: ["node"] };
		const typeRoots = [join(ROOT, "node_modules", "@types")];
		const config = { compilerOptions: { ...options, typeRoots, skipLibCheck: false }, files: ["example.ts"] };
		writeFileSync(project.file("tsconfig.json"), JSON.stringify(config));
		await run(join(ROOT, "node_modules", ".bin", "tsc"), ["--project", project.path]);

		await using service = await startTestService({ LOG_LEVEL: "silent" });
		const env = { HTTP_URL: service.http, ACCESS_KEY: KEY };
		const oldest = project.file(`node_modules/node-${process.platform}-${process.arch}/bin/node`);
		for (const node of [oldest, process.execPath]) {
			const { stdout } = await run(node, ["example.js"], { cwd: project.path, env });
			expect(stdout).toMatch(/refused: conversation\.workspace is missing, conversation\.agent is missing\n$/);
		}
		expect((await run(oldest, ["--version"])).stdout).toMatch(/^v22\./);
	},
	INSTALL_TIMEOUT,
);

test("the package depends on the library versions that the service is tested with", async () => {
	const { dependencies } = object((await import("../package.json", { with: { type: "json" } })).default);
	for (const [name, range] of Object.entries(clientPackage.dependencies))
		expect([name, range]).toEqual([name, `^${object(dependencies)[name]}`]);
});
