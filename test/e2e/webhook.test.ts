import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { postWebhook, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { LOCK_TIMEOUT } from "../support/lock-timeout.ts";
import { RawHttp } from "../support/raw-http.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const LIMIT = 600_000;
const body = JSON.stringify(record());
const key = { "X-Access-Token": KEY };

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

describe("a record is accepted", () => {
	test("with the response of the specification", async () => {
		const response = await postWebhook(service, KEY, body);
		expect(response.status).toBe(200);
		expect(response.headers.get("Content-Type")).toBe("application/json");
		expect(await response.text()).toBe('{"success":true}');
	});

	test("in chunks without a Content-Length, twice on one connection", async () => {
		using client = await new RawHttp(service).connected();
		for (let round = 0; round < 2; round++) {
			await client.head({ ...key, "Transfer-Encoding": "chunked" }, WEBHOOK);
			await client.chunk(body.slice(0, 20));
			await client.chunk(body.slice(20));
			await client.chunk("");
			expect(await client.response()).toMatchObject({ status: 200, body: '{"success":true}' });
		}
	});

	test("with a byte-order mark", async () => {
		expect(await answerTo(`\ufeff${body}`)).toEqual({ status: 200, json: { success: true } });
	});
});

describe("the access key is checked before the body is read", () => {
	test.each([
		["is missing", undefined, 401],
		["is empty", "", 401],
		["is wrong", "wrong-key", 401],
		["lacks the scope", "key-of-the-reader", 403],
	])("so a key that %s is refused after the head of the request", async (_, accessKey, status) => {
		using client = await new RawHttp(service).connected();
		await client.head({ "X-Access-Token": accessKey, "Content-Length": "1000" }, WEBHOOK);
		const response = await client.response();
		expect(response.status).toBe(status);
		expect(response.headers.get("WWW-Authenticate")).toBe(status === 401 ? "APIKey" : null);
		expect(response.headers.get("Content-Type")).toBe("application/json");
		expect(JSON.parse(response.body)).toEqual({ detail: expect.stringMatching(/access key/) });
	});

	test("so a wrong key is refused with 401 even if the body is too large or cannot be read", async () => {
		expect((await answerTo("{", {}, "wrong-key")).status).toBe(401);
		expect((await answerTo("x", { "Content-Type": "text/plain" }, "wrong-key")).status).toBe(401);
		expect((await answerTo("x", { "Content-Encoding": "br" }, "wrong-key")).status).toBe(401);
		expect((await answerTo(Buffer.alloc(LIMIT + 1, "1"), {}, "wrong-key")).status).toBe(401);
	});
});

describe("HTTP routing", () => {
	test.each([
		`${WEBHOOK}/`,
		`${WEBHOOK}/more`,
		"/api/v1/webhooks",
		"/api/v1/webhooks/Conversations",
		"//api/v1/webhooks/conversations",
	])("a post to %s is answered with 404", async (path) => {
		const response = await fetch(`${service.http}${path}`, { method: "POST", headers: key, body });
		expect(response.status).toBe(404);
		expect(await response.json()).toEqual({ detail: "Not Found" });
	});

	test("a post to the address of the console is refused with 405", async () => {
		const response = await fetch(`${service.http}/`, { method: "POST", headers: key, body });
		expect([response.status, response.headers.get("Allow")]).toEqual([405, "GET, HEAD"]);
	});

	test.each(["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])("%s to the webhook is refused with 405", async (method) => {
		const response = await fetch(`${service.http}${WEBHOOK}`, { method, headers: key });
		expect(response.status).toBe(405);
		expect(response.headers.get("Allow")).toBe("POST");
		expect(await response.json()).toEqual({ detail: "Method Not Allowed" });
	});

	test("the OpenAPI document can be read without a key", async () => {
		const response = await fetch(`${service.http}/openapi.json`);
		expect(response.status).toBe(200);
		expect(await response.json()).toMatchObject({
			openapi: "3.1.0",
			paths: { [WEBHOOK]: { post: expect.anything() } },
		});
	});

	test("a post to the webhook with a query is accepted", async () => {
		const response = await fetch(`${service.http}${WEBHOOK}?x=1`, {
			method: "POST",
			headers: { ...key, "Content-Type": "application/json" },
			body,
		});
		expect(response.status).toBe(200);
	});
});

describe("the maximum body size", () => {
	const tooLarge = { status: 413, json: { detail: `The body is larger than ${LIMIT} bytes` } };

	test("accepts a body of exactly the limit, and refuses one byte more", async () => {
		const filled = body + " ".repeat(LIMIT - body.length);
		expect(await answerTo(filled)).toEqual({ status: 200, json: { success: true } });
		expect(await answerTo(`${filled} `)).toEqual(tooLarge);
	});
});

describe("a body is refused", () => {
	test("with another media type", async () => {
		expect(await answerTo(body, { "Content-Type": "text/plain" })).toEqual({
			status: 415,
			json: { detail: "The body must be JSON (Content-Type: application/json)" },
		});
	});

	test("that is empty", async () => {
		const missing = { type: "missing", loc: ["body"], msg: "Field required" };
		expect(await answerTo("")).toEqual({ status: 422, json: { detail: [missing] } });
	});

	test("that is not JSON, and is quoted neither in the response nor in the log", async () => {
		expect(await answerTo('{"id": canary-123}')).toEqual({
			status: 422,
			json: {
				detail: [
					{
						type: "json_invalid",
						loc: ["body", 7],
						msg: "JSON decode error",
						ctx: { error: "not JSON from this place on" },
					},
				],
			},
		});
		expect(service.log()).not.toContain("canary-123");
	});

	test("that is not UTF-8", async () => {
		const bytes = Buffer.concat([Buffer.from('{"title":"'), Buffer.from([0xff]), Buffer.from('"}')]);
		expect(await answerTo(bytes)).toEqual({
			status: 422,
			json: {
				detail: [{ type: "json_invalid", loc: ["body", 0], msg: "JSON decode error", ctx: { error: "not UTF-8" } }],
			},
		});
	});
});

describe("the violations of a record", () => {
	test("are all listed in the form of the specification", async () => {
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
});

describe("a store that cannot write", () => {
	test("causes a 503 and log lines, stores nothing, and accepts posts when it can write again", async () => {
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
});

describe("the base path", () => {
	test("precedes the path of the webhook, which is not found without it", async () => {
		await using own = await startTestService({ BASE_PATH: "/bridge/v2" });
		const moved = { http: `${own.http}/bridge/v2`, grpc: own.grpc };
		expect((await postWebhook(moved, KEY, body)).status).toBe(200);
		expect((await postWebhook(own, KEY, body)).status).toBe(404);
	});
});
