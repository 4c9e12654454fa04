import { execFile } from "node:child_process";
import { cpSync, mkdirSync, readFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import packageJson from "../package.json" with { type: "json" };
import { ServiceProcess } from "./support/child.ts";
import { ROOT } from "./support/start-command.ts";
import { TempFolder } from "./support/temp.ts";

const run = promisify(execFile);
const TIMEOUT = 600_000;
const { name, version } = packageJson;
const folder = new TempFolder("disk");
let releases = 0;

/** Makes a release of the last commit in a clone, each time in another folder. */
async function release(): Promise<string> {
	const clone = folder.file(`${"folder/".repeat(++releases)}clone`);
	mkdirSync(dirname(clone), { recursive: true });
	await run("git", ["clone", "--quiet", ROOT, clone]);
	// Hard links take a moment where the file system is the same.
	const [from, to] = [join(ROOT, "node_modules"), join(clone, "node_modules")];
	await run("cp", ["-al", from, to]).catch(async () => {
		await run("rm", ["-rf", to]);
		await run("cp", ["-a", from, to]);
	});
	// vitest sets a mode in which vite builds for development.
	const { NODE_ENV, ...env } = process.env;
	await run("npm", ["run", "release", "--", `${clone}-release`], { cwd: clone, env });
	return `${clone}-release`;
}

let files: string;
beforeAll(async () => {
	files = await release();
}, TIMEOUT);
afterAll(() => folder[Symbol.dispose]());

test("a release has all files with their checksums, and another one of the same commit is the same", {
	timeout: TIMEOUT,
}, async () => {
	const sums = readFileSync(join(files, "SHA256SUMS"), "utf8");
	expect(
		sums
			.replaceAll(/^[0-9a-f]{64} {2}/gm, "")
			.trim()
			.split("\n"),
	).toEqual([
		`conversation-update-webhook-client-${version}.tgz`,
		`${name}-${version}-image-context.tar.gz`,
		`${name}-${version}-openapi.json`,
		`${name}-${version}-protos.tar.gz`,
		`${name}-${version}-sbom.cdx.json`,
		`${name}-${version}.tgz`,
	]);
	await run("sha256sum", ["--check", "--quiet", "SHA256SUMS"], { cwd: files });
	expect(readFileSync(join(await release(), "SHA256SUMS"), "utf8")).toBe(sums);
});

test("the SBOM names what users get, and not the tools", () => {
	const sbom = z
		.object({
			serialNumber: z.string(),
			metadata: z.object({ timestamp: z.string(), component: z.object({ name: z.string(), version: z.string() }) }),
			components: z.array(z.object({ name: z.string() })),
		})
		.parse(JSON.parse(readFileSync(join(files, `${name}-${version}-sbom.cdx.json`), "utf8")));
	expect(sbom.metadata.component).toEqual({ name, version });
	expect(sbom.serialNumber).toMatch(/^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
	const names = sbom.components.map((component) => component.name);
	expect(names).toEqual(expect.arrayContaining(["@grpc/grpc-js", "zod", "preact"]));
	expect(names).not.toContain("vitest");
});

test("buf reads the protos as a module", { timeout: TIMEOUT }, async () => {
	const buf = join(ROOT, "node_modules/.bin/buf");
	const { stdout } = await run(buf, ["ls-files", join(files, `${name}-${version}-protos.tar.gz`)]);
	expect(stdout).toContain("conversation_service.proto");
});

test("npx runs the package in an empty folder, with the demo", { timeout: TIMEOUT }, async () => {
	using empty = new TempFolder("disk");
	cpSync(join(files, `${name}-${version}.tgz`), empty.file("service.tgz"));
	// Without the Node.js of the project, as in a shell.
	const PATH = (process.env.PATH ?? "")
		.split(delimiter)
		.filter((path) => !path.includes("node_modules"))
		.join(delimiter);
	const node = `node@${packageJson.devDependencies.node}`;
	const npx = `npx --yes --prefer-offline -p ${node} -p ./service.tgz ${name} --demo`;
	// In a process group of its own: npx passes no signal on.
	const command = `cd ${empty.path} && exec setsid --wait sh -c 'echo $$ > group; exec ${npx}'`;
	const env = { PATH, HOME: process.env.HOME ?? empty.path };
	await using service = await ServiceProcess.start("/never/used.db", env, ["-c", command], "sh", TIMEOUT);
	const keyOf = () => /^ {2}([\w-]{43})$/m.exec(service.output.stderr)?.[1];
	// Written after the log has said that it listens.
	await expect.poll(keyOf).toBeDefined();
	const key = keyOf() ?? "";
	await expect
		.poll(async () => {
			const response = await fetch(`${service.http}/api/v1/conversations`, { headers: { "X-Access-Token": key } });
			return await response.json();
		})
		.toMatchObject({ conversations: expect.arrayContaining([expect.anything(), expect.anything()]) });
	expect((await fetch(service.http)).status).toBe(200);
	process.kill(-Number(readFileSync(empty.file("group"), "utf8")), "SIGTERM");
	await service.exit();
});
