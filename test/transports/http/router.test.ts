import { afterAll, beforeAll, expect, test } from "vitest";
import { Gate } from "../../../src/access/gate.ts";
import { hashKey, Keyring } from "../../../src/access/keys.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { listenHttp } from "../../../src/transports/http/http-listener.ts";
import { createRouter, type Route } from "../../../src/transports/http/router.ts";
import type { RunningListener } from "../../../src/transports/running-listener.ts";

const KEY = "a-key-that-may-read";
const seen: unknown[] = [];
const echo = (method: "GET" | "POST", path: string): Route => ({
	method,
	path,
	scope: "read",
	handle: async ({ params, search, principal }) => {
		seen.push(principal?.name);
		return JSON.stringify({ path, params, search });
	},
});

let listener: RunningListener;
let url: string;

beforeAll(async () => {
	const gate = new Gate(new Keyring([{ name: "reader", scopes: new Set(["read"]), hash: hashKey(KEY) }]), []);
	const routes = [
		echo("GET", "/fixed"),
		echo("POST", "/fixed"),
		echo("GET", "/list"),
		echo("GET", "/list/{id}"),
		echo("GET", "/~x:y@z/a%20b/(c)/$&'+,;=!/{id}"),
		{ ...echo("GET", "/open"), scope: "public" } as const,
	];
	const router = await createRouter(routes, gate, createLogger("silent"));
	listener = await listenHttp({ host: "127.0.0.1", port: 0 }, router);
	url = `http://127.0.0.1:${listener.address.port}`;
});

afterAll(() => listener.stop());

async function answer(path: string, init: RequestInit = {}) {
	const response = await fetch(`${url}${path}`, { headers: { "X-Access-Token": KEY }, ...init });
	const text = await response.text();
	return { status: response.status, json: text === "" ? undefined : JSON.parse(text), headers: response.headers };
}

test.each([
	["/fixed", "/fixed", {}, ""],
	["/fixed?a=b?c", "/fixed", {}, "a=b?c"],
	["/list/a%2Fb%20c", "/list/{id}", { id: "a/b c" }, ""],
	["/~x:y@z/a%20b/(c)/$&'+,;=!/d", "/~x:y@z/a%20b/(c)/$&'+,;=!/{id}", { id: "d" }, ""],
])("%s leads to %s", async (path, route, params, search) => {
	expect(await answer(path)).toMatchObject({ status: 200, json: { path: route, params, search } });
});

test.each(["/", "/nothing", "/fixed/", "/FIXED", "/list/", "/list/a/b", "/list/%zz", `/list/${"a".repeat(1025)}`])(
	"%s is not found, with a key or without, whatever the method",
	async (path) => {
		for (const init of [{}, { method: "POST", body: "x" }, { headers: {} }]) {
			const { status, json } = await answer(path, init);
			expect([status, json]).toEqual([404, { detail: "Not Found" }]);
		}
	},
);

test.each([
	["DELETE", "/fixed", "GET, HEAD, POST"],
	["PROPFIND", "/fixed", "GET, HEAD, POST"],
	["OPTIONS", "/list", "GET, HEAD"],
	["POST", "/list/x", "GET, HEAD"],
])("%s %s is not allowed", async (method, path, allowed) => {
	const { status, json, headers } = await answer(path, { method });
	expect([status, json, headers.get("Allow")]).toEqual([405, { detail: "Method Not Allowed" }, allowed]);
});

test("HEAD gives the header of GET", async () => {
	const get = await answer("/list");
	const head = await answer("/list", { method: "HEAD" });
	expect([head.status, head.json]).toEqual([200, undefined]);
	for (const name of ["Content-Type", "Content-Length"]) expect(head.headers.get(name)).toBe(get.headers.get(name));
});

test("the gate stands before every route that is not public", async () => {
	seen.length = 0;
	for (const [path, method] of [
		["/fixed", "GET"],
		["/fixed", "HEAD"],
		["/fixed", "POST"],
		["/list/x", "GET"],
	] as const)
		expect((await answer(path, { method, headers: {} })).status).toBe(401);
	expect(seen).toEqual([]);
	expect((await answer("/open", { headers: {} })).status).toBe(200);
	expect((await answer("/fixed")).status).toBe(200);
	expect(seen).toEqual([undefined, "reader"]);
});
