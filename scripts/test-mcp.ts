/**
 * Tests the endpoint of the Model Context Protocol with the protocol's own conformance suite:
 * `MCP_CONFORMANCE=node_modules/@modelcontextprotocol/conformance npm run test:mcp`. The folder is that of the package,
 * which is installed elsewhere, because it brings a hundred others. Only those scenarios run that are about any server:
 * the others call tools, resources and prompts of a sample server.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { KEY, startTestService } from "../test/support/service.ts";

/** The scenarios, by the version of the protocol. */
const SCENARIOS: Readonly<Record<string, readonly string[]>> = {
	"2025-11-25": [
		"server-initialize",
		"ping",
		"tools-list",
		"resources-list",
		"prompts-list",
		"dns-rebinding-protection",
	],
	"2026-07-28": [
		"server-stateless",
		"tools-list",
		"resources-list",
		"prompts-list",
		"sep-2164-resource-not-found",
		"dns-rebinding-protection",
		"caching",
		"http-header-validation",
	],
};

/** Checks that fail, by scenario: they need tools of the sample server, or a stream of notifications, of which there are none. */
const UNMET: Readonly<Record<string, readonly string[]>> = {
	"server-stateless": [
		"sep-2575-server-rejects-undeclared-capability",
		"sep-2575-missing-capability-http-400",
		"sep-2575-http-server-no-independent-requests-on-stream",
		"sep-2575-server-no-log-without-loglevel",
		"sep-2575-server-sends-subscription-ack",
		"sep-2575-server-tags-subscription-id",
	],
};

const folder = process.env.MCP_CONFORMANCE ?? "";
if (folder === "") throw new Error("MCP_CONFORMANCE must name the folder of @modelcontextprotocol/conformance");
// The suite sends no access key, so this server adds it.
let target: URL | undefined;
const proxy = createServer((incoming, outgoing) => {
	const { method, url: path, headers } = incoming;
	const to = { host: target?.hostname, port: target?.port, method, path };
	const forwarded = request({ ...to, headers: { ...headers, "x-access-token": KEY } });
	forwarded.on("response", (response) => {
		outgoing.writeHead(response.statusCode ?? 502, response.headers);
		response.pipe(outgoing);
	});
	forwarded.on("error", () => outgoing.destroy());
	incoming.pipe(forwarded);
}).listen(0, "127.0.0.1");
await once(proxy, "listening");
const address = proxy.address();
if (address === null || typeof address === "string") throw new Error("the proxy has no port");
const origin = `http://127.0.0.1:${address.port}`;
await using service = await startTestService({ LOG_LEVEL: "silent", CORS_ORIGINS: origin });
target = new URL(service.http);

let failed = 0;
for (const [version, scenarios] of Object.entries(SCENARIOS))
	for (const scenario of scenarios) {
		const args = ["server", "--url", `${origin}/mcp`, "--scenario", scenario, "--spec-version", version];
		const child = spawn(process.execPath, [join(folder, "dist/index.js"), ...args], {
			stdio: ["ignore", "pipe", "pipe"],
		});
		let output = "";
		for (const stream of [child.stdout, child.stderr]) stream.on("data", (part: Buffer) => (output += part.toString()));
		const [code] = await once(child, "close");
		const unmet = [...stripVTControlCharacters(output).matchAll(/\[([\w-]+) *\] FAILURE/g)].map(([, check]) => check);
		const known = UNMET[scenario] ?? [];
		const ok = unmet.join() === known.join() && (code === 0) === (known.length === 0) && output.includes("SUCCESS");
		console.log(`${ok ? "passed" : "FAILED"}: ${scenario} of ${version}, ${known.length} checks not met as known`);
		if (ok) continue;
		failed += 1;
		console.log(output);
	}
proxy.close();
proxy.closeAllConnections();
console.log(`${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
