import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { postWebhook, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { LOCK_TIMEOUT } from "../support/lock-timeout.ts";
import { RawHttp } from "../support/raw-http.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const LIMIT = 600_000;
const body = JSON.stringify(record());

let service: TestService;

beforeAll(async () => {
	service = await startTestService({
		MAX_BODY_BYTES: String(LIMIT),
		ACCESS_KEYS: `test:${KEY},reader:key-of-the-reader:read`,
	});
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

async function answerTo(sent: string | Uint8Array, fields?: Record<string, string | null>, accessKey = KEY) {
	const response = await postWebhook(service, accessKey, sent, fields);
	return { status: response.status, json: await response.json() };
}

test("a record is accepted with the response of the specification, also with a query", async () => {
	const response = await postWebhook(service, KEY, body, {}, `${WEBHOOK}?x=1`);
	expect(response.status).toBe(200);
	expect(response.headers.get("Content-Type")).toBe("application/json");
	expect(await response.text()).toBe('{"success":true}');
});

test.each([
	["is wrong", "wrong-key", 401],
	["lacks the scope", "key-of-the-reader", 403],
])("a key that %s is refused after the head of the request, before its body", async (_, accessKey, status) => {
	using client = await new RawHttp(service).connected();
	await client.head({ "X-Access-Token": accessKey, "Content-Length": "1000" }, WEBHOOK);
	const response = await client.response();
	expect(response.status).toBe(status);
	expect(response.headers.get("WWW-Authenticate")).toBe(status === 401 ? "APIKey" : null);
	expect(response.headers.get("Content-Type")).toBe("application/json");
	expect(JSON.parse(response.body)).toEqual({ detail: expect.stringMatching(/access key/) });
});

test("a wrong key is refused with 401 even if the body is too large or cannot be read", async () => {
	expect((await answerTo("x", { "Content-Type": "text/plain" }, "wrong-key")).status).toBe(401);
	expect((await answerTo("x", { "Content-Encoding": "br" }, "wrong-key")).status).toBe(401);
	expect((await answerTo(Buffer.alloc(LIMIT + 1, "1"), {}, "wrong-key")).status).toBe(401);
});

test.each([
	["POST", `${WEBHOOK}/`, 404, null, "Not Found"],
	["POST", "/api/v1/webhooks/Conversations", 404, null, "Not Found"],
	["POST", "//api/v1/webhooks/conversations", 404, null, "Not Found"],
	["GET", WEBHOOK, 405, "POST", "Method Not Allowed"],
	["DELETE", WEBHOOK, 405, "POST", "Method Not Allowed"],
])("%s to %s is answered with %i", async (method, path, status, allow, detail) => {
	const response = await fetch(`${service.http}${path}`, { method, headers: { "X-Access-Token": KEY } });
	expect([response.status, response.headers.get("Allow"), await response.json()]).toEqual([status, allow, { detail }]);
});

test("a body of exactly the limit is accepted, and one byte more is refused", async () => {
	const filled = body + " ".repeat(LIMIT - body.length);
	expect(await answerTo(filled)).toEqual({ status: 200, json: { success: true } });
	const detail = `The body is larger than ${LIMIT} bytes`;
	expect(await answerTo(`${filled} `)).toEqual({ status: 413, json: { detail } });
});

test("a body with another media type is refused", async () => {
	expect(await answerTo(body, { "Content-Type": "text/plain" })).toEqual({
		status: 415,
		json: { detail: "The body must be JSON (Content-Type: application/json)" },
	});
});

const notJson = (at: number, error: string) => ({
	...{ type: "json_invalid", loc: ["body", at], msg: "JSON decode error", ctx: { error } },
});
test.each([
	["that is empty", Buffer.alloc(0), { type: "missing", loc: ["body"], msg: "Field required" }],
	["that is not JSON", Buffer.from('{"id": canary-123}'), notJson(7, "not JSON from this place on")],
	["that is not UTF-8", Buffer.from('{"title":"\u00ff"}', "latin1"), notJson(0, "not UTF-8")],
])("a body %s is refused, and quoted neither in the response nor in the log", async (_, sent, detail) => {
	expect(await answerTo(sent)).toEqual({ status: 422, json: { detail: [detail] } });
	expect(service.log()).not.toContain("canary-123");
});

test("the violations of a record are all listed in the form of the specification", async () => {
	const broken = { id: "x", workspace: { kind: "Nowhere" }, max_iterations: 0, hook_config: { more: 1 } };
	const json = JSON.stringify(broken);
	expect(await answerTo(json)).toEqual({
		status: 422,
		json: {
			detail: [
				{
					type: "uuid_parsing",
					loc: ["body", "id"],
					msg: "Input should be a valid UUID",
					input: "x",
					ctx: { error: "not a UUID" },
				},
				{
					type: "value_error",
					loc: ["body", "workspace"],
					msg: "Value error, unknown kind 'Nowhere'; it should be 'LocalWorkspace' or 'RemoteWorkspace'",
					ctx: { error: {} },
				},
				{
					type: "greater_than",
					loc: ["body", "max_iterations"],
					msg: "Input should be greater than 0",
					input: 0,
					ctx: { gt: 0 },
				},
				{ type: "extra_forbidden", loc: ["body", "hook_config", "more"], msg: "Extra inputs are not permitted" },
				{ type: "missing", loc: ["body", "agent"], msg: "Field required" },
			],
		},
	});
});

test("a store that cannot write causes a 503 and log lines, stores nothing, and accepts posts when it can again", async () => {
	await using own = await startTestService();
	const other = new DatabaseSync(own.database, LOCK_TIMEOUT);
	other.exec("BEGIN IMMEDIATE");
	const refused = await postWebhook(own, KEY, body);
	expect(refused.status).toBe(503);
	expect(refused.headers.get("Retry-After")).toMatch(/^\d+$/);
	expect(await refused.json()).toEqual({ detail: expect.any(String) });
	expect(own.log()).toContain('"event":"store_failed"');
	const refusal = own
		.log()
		.split("\n")
		.find((line) => line.includes('"event":"request_refused"'));
	expect(JSON.parse(refusal ?? "")).toMatchObject({ kind: "unavailable", conversationId: JSON.parse(body).id });
	other.exec("ROLLBACK");
	expect((await postWebhook(own, KEY, body)).status).toBe(200);
	expect(other.prepare("SELECT count(*) AS count FROM updates").get()).toEqual({ count: 1 });
	other.close();
});

test("the base path precedes the path of the webhook, which is not found without it", async () => {
	await using own = await startTestService({ BASE_PATH: "/bridge/v2" });
	const moved = { http: `${own.http}/bridge/v2`, grpc: own.grpc };
	expect((await postWebhook(moved, KEY, body)).status).toBe(200);
	expect((await postWebhook(own, KEY, body)).status).toBe(404);
});
