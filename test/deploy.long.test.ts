import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
	chmodSync,
	chownSync,
	copyFileSync,
	cpSync,
	existsSync,
	mkdirSync,
	readFileSync,
	writeFileSync,
} from "node:fs";
import { delimiter, dirname, join, matchesGlob, relative } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { validate as isStatefulSet } from "kubernetes-models/_schemas/IoK8sApiAppsV1StatefulSet";
import { validate as isService } from "kubernetes-models/_schemas/IoK8sApiCoreV1Service";
import { validate as isPodDisruptionBudget } from "kubernetes-models/_schemas/IoK8sApiPolicyV1PodDisruptionBudget";
import { describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import packageJson from "../package.json" with { type: "json" };
import { openSqliteStore } from "../src/store/sqlite/sqlite.ts";
import { postWebhook } from "./support/clients.ts";
import { record } from "./support/fixtures.ts";
import { KEY, testEnvironment } from "./support/service.ts";
import { ROOT } from "./support/start-command.ts";
import { TempFolder } from "./support/temp.ts";

const run = promisify(execFile);
const readDeployFile = (name: string): string => readFileSync(join(ROOT, "deploy", name), "utf8");

/** Instructions of the Dockerfile in order, each with its arguments as one text. */
const dockerfile = [...readDeployFile("Dockerfile").matchAll(/^([A-Z]+) (.+)$/gm)].map(([, name = "", text = ""]) => ({
	name,
	text,
}));
const textsOf = (name: string): string[] => dockerfile.filter((found) => found.name === name).map(({ text }) => text);
const argumentsOf = (text = ""): string[] => z.array(z.string()).parse(JSON.parse(text.slice(text.indexOf("["))));

describe("the package", () => {
	test("is installed into an empty folder without development dependencies, and runs", {
		timeout: 300_000,
	}, async () => {
		using folder = new TempFolder("disk");
		const app = folder.file("app");
		mkdirSync(app);
		// The scripts would build dist/ again, which other tests run.
		await run("npm", ["pack", "--ignore-scripts", "--pack-destination", folder.path], { cwd: ROOT });
		const file = folder.file(`${packageJson.name}-${packageJson.version}.tgz`);
		await run("tar", ["-xzf", file, "--strip-components=1", "-C", app]);
		copyFileSync(join(ROOT, "package-lock.json"), join(app, "package-lock.json"));
		const install = ["ci", "--omit=dev", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"];
		await run("npm", install, { cwd: app });
		expect(existsSync(join(app, "node_modules", "vitest"))).toBe(false);
		const PATH = [dirname(process.execPath), "/usr/bin", "/bin"].join(delimiter);
		const program = (env: Readonly<Record<string, string>>, ...args: string[]) =>
			run(join(app, "dist", "main.js"), args, { cwd: folder.path, env: { PATH, ...env } });
		expect(await program({}, "--version")).toEqual({ stdout: `${packageJson.version}\n`, stderr: "" });
		// An empty database is imported, which loads an engine and reads its migrations.
		const database = folder.file("conversations.db");
		const env = { DATABASE_URL: `sqlite:${database}` };
		await (await openSqliteStore(folder.file("source.db"), { error() {} })).close();
		await program({ DATABASE_URL: `sqlite:${folder.file("source.db")}` }, "export", folder.file("all.jsonl.zst"));
		await program(env, "import", folder.file("all.jsonl.zst"));
		expect(existsSync(database)).toBe(true);
	});

	test("cannot be built without development dependencies, and says so", async () => {
		using folder = new TempFolder();
		copyFileSync(join(ROOT, "package.json"), folder.file("package.json"));
		const env = { ...process.env, PATH: [dirname(process.execPath), "/usr/bin", "/bin"].join(delimiter) };
		await expect(run("npm", ["run", "prepare"], { cwd: folder.path, env })).rejects.toMatchObject({
			stderr: expect.stringContaining("The program cannot be built without the development dependencies"),
		});
	});
});

describe("the Dockerfile", () => {
	test("uses the pinned Node.js, two stages and a user other than root", () => {
		const image = `node:${packageJson.devDependencies.node}-trixie-slim`;
		expect(textsOf("FROM")).toEqual([`${image} AS build`, image]);
		expect(textsOf("USER")).toEqual(["1000:1000"]);
		expect(textsOf("ENV")).toEqual([
			"HTTP_ADDRESS=0.0.0.0:8080",
			"GRPC_ADDRESS=0.0.0.0:50051",
			"DATABASE_URL=sqlite:/data/conversations.db",
		]);
		expect(readDeployFile("Dockerfile")).toContain(`--tag ${packageJson.name}:${packageJson.version} .`);
	});

	test("builds a service that runs where only the database folder is writable", { timeout: 300_000 }, async () => {
		using folder = new TempFolder("disk");
		const pathOf = (path: string): string => folder.file(path.replace(/^\//, ""));
		const ignored = readDeployFile("Dockerfile.dockerignore").trim().split("\n");
		const inContext = (path: string) => !ignored.some((pattern) => matchesGlob(relative(ROOT, path), pattern));
		let workdir = folder.path;
		for (const { name, text } of dockerfile) {
			if (name === "WORKDIR") {
				workdir = pathOf(text);
				mkdirSync(workdir);
			}
			if (name === "RUN" && text.startsWith("npm "))
				await run("sh", ["-c", text], { cwd: workdir, env: { ...process.env, npm_config_prefer_offline: "true" } });
			if (name !== "COPY") continue;
			const [from = "", to = ""] = text.replace("--from=build ", "").split(" ");
			if (from === ".") cpSync(ROOT, workdir, { recursive: true, filter: inContext });
			else cpSync(pathOf(from), join(workdir, to), { recursive: true, verbatimSymlinks: true });
		}
		expect(existsSync(pathOf("/app/node_modules/vitest"))).toBe(false);

		// Root ignores file permissions, so under root the service runs as another user. Else write permission is removed.
		const uid = process.getuid?.() === 0 ? 65534 : process.getuid?.();
		for (const path of ["/data", "/bin"]) mkdirSync(pathOf(path), { mode: 0o755 });
		if (process.getuid?.() === 0) chownSync(pathOf("/data"), 65534, 65534);
		else await run("chmod", ["-R", "a-w", pathOf("/app")]);
		chmodSync(folder.path, 0o755);
		copyFileSync(process.execPath, pathOf("/bin/node"));
		const [entry = ""] = textsOf("ENTRYPOINT").map((text) => argumentsOf(text)[0]);
		const service = spawn(pathOf(entry), argumentsOf(textsOf("CMD").find((text) => text.startsWith("["))), {
			cwd: workdir,
			env: {
				PATH: [pathOf("/bin"), "/usr/bin", "/bin"].join(delimiter),
				...testEnvironment(pathOf("/data/c.db")),
			},
			stdio: ["ignore", "pipe", "inherit"],
			...(uid === undefined ? {} : { uid, gid: uid }),
		});
		const ended = once(service, "exit");
		try {
			let http = "";
			for await (const line of createInterface(service.stdout)) {
				const { event, listener, address } = JSON.parse(line);
				if (event === "listening" && listener === "http") http = `http://${address}`;
				if (event === "listening" && listener === "grpc") break;
			}
			expect((await postWebhook({ http, grpc: "" }, KEY, JSON.stringify(record()))).status).toBe(200);

			const [program = "", ...args] = argumentsOf(textsOf("HEALTHCHECK")[0]);
			const check = () =>
				run(
					pathOf(join("/bin", program)),
					args.map((text) => text.replace("http://127.0.0.1:8080", http)),
				).then(
					() => true,
					() => false,
				);
			expect(await check()).toBe(true);
			service.stdout.resume();
			service.kill("SIGTERM");
			expect(await ended).toEqual([0, null]);
			expect(await check()).toBe(false);
		} finally {
			service.kill("SIGKILL");
			await run("chmod", ["-R", "u+w", folder.path]);
		}
	});
});

test("systemd accepts the unit and rates its exposure as OK", async () => {
	using folder = new TempFolder();
	const name = `${packageJson.name}.service`;
	const text = readDeployFile(name);
	expect(text).toContain(`ExecStart=/opt/${packageJson.name}/dist/main.js serve`);
	// systemd-analyze reports a program that does not exist, so the unit has to name the one that was built here.
	writeFileSync(folder.file(name), text.replaceAll(`/opt/${packageJson.name}`, ROOT));
	const outcome = await run("systemd-analyze", ["verify", "--man=no", folder.file(name)]).catch((error: unknown) => {
		if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
		throw error;
	});
	if (outcome === undefined) return console.warn("The unit is not checked: systemd-analyze is not installed.");
	expect(outcome).toEqual({ stdout: "", stderr: "" });
	const offline = ["security", "--offline=yes", "--threshold=20", folder.file(name)];
	expect((await run("systemd-analyze", offline)).stdout).toMatch(/Overall exposure level for .+: [01]\.\d OK/);
});

describe("the Kubernetes manifest", () => {
	const schemas = { Service: isService, PodDisruptionBudget: isPodDisruptionBudget, StatefulSet: isStatefulSet };
	const objects = parseAllDocuments(readDeployFile("kubernetes.yaml")).map((document) => {
		expect(document.errors).toEqual([]);
		return z.looseObject({ kind: z.string() }).parse(document.toJS());
	});
	const [service, budget, set] = objects;

	test("conforms to the Kubernetes schemas", () => {
		expect(objects.map(({ kind }) => kind)).toEqual(Object.keys(schemas));
		for (const [index, isValid] of Object.values(schemas).entries()) {
			expect(isValid(objects[index])).toBe(true);
			expect(isValid({ ...objects[index], spec: "text" })).toBe(false);
		}
	});

	test("runs one pod of the image, with probes, resource limits and a read-only root file system", () => {
		const labels = { "app.kubernetes.io/name": packageJson.name };
		const named = { metadata: { name: packageJson.name, labels } };
		expect(service).toMatchObject({ ...named, spec: { selector: labels } });
		expect(budget).toMatchObject({ ...named, spec: { minAvailable: 1, selector: { matchLabels: labels } } });
		const [httpPort, grpcPort] = textsOf("EXPOSE").flatMap((text) => text.split(" ").map(Number));
		const [volume] = textsOf("VOLUME");
		const [user] = textsOf("USER").map((text) => Number(text.split(":")[0]));
		expect(service).toMatchObject({ spec: { ports: [{ port: httpPort }, { port: grpcPort }] } });
		expect(set).toMatchObject({
			...named,
			spec: {
				replicas: 1,
				selector: { matchLabels: labels },
				template: {
					metadata: { labels },
					spec: {
						terminationGracePeriodSeconds: 35,
						securityContext: { runAsNonRoot: true, runAsUser: user, fsGroup: user },
						containers: [
							{
								image: `${packageJson.name}:${packageJson.version}`,
								ports: [
									{ name: "http", containerPort: httpPort },
									{ name: "grpc", containerPort: grpcPort },
								],
								startupProbe: { httpGet: { path: "/healthz", port: "http" } },
								livenessProbe: { httpGet: { path: "/healthz", port: "http" } },
								readinessProbe: { httpGet: { path: "/readyz", port: "http" } },
								resources: { limits: { cpu: "2", memory: "3Gi" } },
								securityContext: {
									allowPrivilegeEscalation: false,
									readOnlyRootFilesystem: true,
									capabilities: { drop: ["ALL"] },
								},
								volumeMounts: [{ name: "data", mountPath: volume }],
							},
						],
					},
				},
				volumeClaimTemplates: [{ metadata: { name: "data" } }],
			},
		});
	});
});
