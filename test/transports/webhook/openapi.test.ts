import { gzipSync } from "node:zlib";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationEventSchema } from "../../../gen/conversations/v1/event_pb.js";
import { responseSchemas } from "../../../scripts/openapi/document.ts";
import { deriveJsonSchemas } from "../../../scripts/openapi/json-schema.ts";
import { packageJson } from "../../../src/package-json.ts";
import { stringifyExactJson } from "../../../src/record/json/exact-json.ts";
import { type MessagePlan, planMessage } from "../../../src/record/plan.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { corpusBody, object, record } from "../../support/fixtures.ts";
import { compileSchema } from "../../support/json-schema.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const READER = "key-of-the-reader";
const ERASER = "key-of-the-eraser";
const PATH = "/api/v1/webhooks/conversations";
const EVENTS = "/api/v1/webhooks/events/{conversation_id}";
const READS = "/api/v1/conversations";
const SENDERS = "/api/v1/senders";
const USAGE = "/api/v1/usage";
const UPDATES = `${READS}/{id}/updates`;
const WATCHES = ["/api/v1/updates:watch", "/api/v1/events:watch"];
const OF_ONE = [`${READS}/{id}`, UPDATES, `${READS}/{id}/events`, `${READS}/{id}/gaps`];
const REFUSED_POSTS = "/api/v1/refused-posts";
const REFUSED = [REFUSED_POSTS, `${REFUSED_POSTS}:retry`, `${REFUSED_POSTS}/{id}`];
const SEARCH = "/api/v1/search";
const ENDPOINTS = "/api/v1/endpoints";
const ENDPOINT_VERBS = ["pause", "resume", "test", "rotate-secret", "replay"].map(
	(verb) => `${ENDPOINTS}/{name}:${verb}`,
);
const DELIVERIES = `${ENDPOINTS}/{name}/deliveries`;
const FORWARDING = [ENDPOINTS, `${ENDPOINTS}/{name}`, ...ENDPOINT_VERBS, DELIVERIES, `${DELIVERIES}/{id}:retry`];
const READ_PATHS = [READS, `${READS}/counts`, SENDERS, ...OF_ONE, ...WATCHES, USAGE, ...REFUSED, SEARCH];
const AUDIT = "/api/v1/audit";
const TRAJECTORY = `${READS}/{id}/trajectory`;
const BUDGETS = ["/api/v1/budgets", "/api/v1/budgets/{name}"];
const SCORES = ["/api/v1/scores", "/api/v1/scores/report", `${READS}/{id}/scores/{name}`];
const PATHS = [PATH, EVENTS, ...READ_PATHS, AUDIT, ...FORWARDING, ...BUDGETS, ...SCORES, TRAJECTORY];

let service: TestService;
let document: JsonObject;

beforeAll(async () => {
	service = await startTestService({
		ACCESS_KEYS: `test:${KEY}:ingest+read+forward+keys,reader:${READER}:read,eraser:${ERASER}:erase+forward+score`,
		MAX_BODY_BYTES: "20000",
		LOG_LEVEL: "silent",
	});
	document = await fetchDocument(service);
});

afterAll(() => service[Symbol.asyncDispose]());

async function fetchDocument({ http }: TestService): Promise<JsonObject> {
	const response = await fetch(`${http}/openapi.json`);
	expect([response.status, response.headers.get("Content-Type")]).toEqual([200, "application/json"]);
	return object(JSON.parse(await response.text()));
}

/** Returns the object at a path of member names in a JSON value. */
function at(json: JsonValue | undefined, ...names: string[]): JsonObject {
	return object(names.reduce<JsonValue | undefined>((inner, name) => object(inner)[name], json));
}

test("the document is a valid OpenAPI 3.1 document whose references resolve", async () => {
	const validator = new Validator();
	expect(await validator.validate(structuredClone(document))).toEqual({ valid: true });
	expect(validator.version).toBe("3.1");
});

test("a damaged document, or one with an unresolved reference, is not valid", async () => {
	const damaged = structuredClone(document);
	at(damaged, "paths", PATH, "post").responses = { 200: { description: 1 } };
	expect(await new Validator().validate(damaged)).toMatchObject({ valid: false });
	const dangling = structuredClone(document);
	delete at(dangling, "components", "schemas").LLM;
	expect(await new Validator().validate(dangling)).toMatchObject({ valid: false });
});

test("versions, paths, operation, tags and security scheme are those of the specification", () => {
	const { openapi, info, paths, tags } = document;
	expect({ openapi, version: object(info).version, paths: Object.keys(object(paths)), tags }).toEqual({
		openapi: "3.1.0",
		version: packageJson().version,
		paths: PATHS,
		tags: ["Webhooks", "Conversations"].map((name) => ({ name, description: expect.any(String) })),
	});
	const { operationId, tags: operationTags, security, requestBody } = at(paths, PATH, "post");
	expect({ operationId, operationTags, security, requestBody }).toEqual({
		operationId: "on_conversation_update_api_v1_webhooks_conversations_post",
		operationTags: ["Webhooks"],
		security: [{ APIKeyHeader: [] }],
		requestBody: {
			description: expect.any(String),
			required: true,
			content: {
				"application/json": {
					schema: { $ref: "#/components/schemas/ConversationInfo" },
					examples: { started: expect.anything(), finished: expect.anything() },
				},
			},
		},
	});
	expect(at(document, "components", "securitySchemes")).toEqual({
		APIKeyHeader: { type: "apiKey", in: "header", name: "X-Access-Token" },
	});
});

function derived(plan: MessagePlan): JsonObject {
	return object(JSON.parse(stringifyExactJson(deriveJsonSchemas(plan, "#/components/schemas/"))));
}

test("the schemas are those of the record and of the responses", () => {
	expect(at(document, "components", "schemas")).toEqual({
		...object(JSON.parse(stringifyExactJson(responseSchemas()))),
		...derived(planMessage(ConversationEventSchema)),
		...derived(new RecordFormat().plan),
		Trajectory: { type: "object", description: expect.any(String), additionalProperties: true },
		Success: { type: "object", properties: { success: { type: "boolean", default: true } } },
		Failure: { type: "object", properties: { detail: { type: "string" } }, required: ["detail"] },
		HTTPValidationError: {
			type: "object",
			properties: { detail: { type: "array", items: { $ref: "#/components/schemas/ValidationError" } } },
		},
		ValidationError: {
			type: "object",
			properties: {
				loc: { type: "array", items: { anyOf: [{ type: "string" }, { type: "integer" }] } },
				msg: { type: "string" },
				type: { type: "string" },
				input: {},
				ctx: { type: "object" },
			},
			required: ["loc", "msg", "type"],
		},
	});
});

test.each([
	["post", PATH, "Success", [400, 401, 403, 413, 415, 422, 429, 500, 503]],
	["post", EVENTS, "Success", [400, 401, 403, 413, 415, 422, 429, 500, 503]],
	["get", READS, "ListConversationsResponse", [400, 401, 403, 429, 500, 503]],
	["get", `${READS}/counts`, "CountConversationsResponse", [400, 401, 403, 429, 500, 503]],
	["get", `${READS}/{id}`, "ConversationInfo", [400, 401, 403, 404, 410, 429, 500, 503]],
	["get", UPDATES, "ListConversationUpdatesResponse", [400, 401, 403, 410, 429, 500, 503]],
	["get", TRAJECTORY, "Trajectory", [400, 401, 403, 404, 413, 429, 500, 503]],
	["get", `${READS}/{id}/events`, "ListConversationEventsResponse", [400, 401, 403, 410, 429, 500, 503]],
] as const)("each status of %s %s is documented with the schema of its body", (method, path, success, failures) => {
	const responses = Object.entries(at(document, "paths", path, method, "responses"));
	expect(responses.map(([status, response]) => [status, schemaOf(response)])).toEqual([
		["200", success],
		...failures.map((status) => [String(status), status === 422 ? "HTTPValidationError" : "Failure"]),
	]);
});

function schemaOf(response: JsonValue): string {
	return String(at(response, "content", "application/json", "schema").$ref).replace("#/components/schemas/", "");
}

describe.each<[string, string, string]>([
	[PATH, JSON.stringify(record()), JSON.stringify({ id: 1, hook_config: { Stop: [] } })],
	[EVENTS, "[]", JSON.stringify([{ id: 1 }])],
])("the webhook %s", (path, body, wrong) => {
	const json = { "Content-Type": "application/json" };
	const url = () => service.http + path.replace("{conversation_id}", "048c31eb670a4b4aad4bafd97508c3e8");
	test.each<[number, string, Record<string, string>]>([
		[200, body, { ...json, "X-Access-Token": KEY }],
		[400, body, { ...json, "X-Access-Token": KEY, "Content-Encoding": "gzip" }],
		[401, body, { ...json, "X-Access-Token": "another key" }],
		[403, body, { ...json, "X-Access-Token": READER }],
		[413, " ".repeat(20_001), { ...json, "X-Access-Token": KEY }],
		[415, body, { "Content-Type": "text/plain", "X-Access-Token": KEY }],
		[422, wrong, { ...json, "X-Access-Token": KEY }],
	])("returns the body and the header fields that are documented for the status %i", async (status, text, headers) => {
		const response = await fetch(url(), { method: "POST", headers, body: Buffer.from(text) });
		expect(response.status).toBe(status);
		const described = at(document, "paths", path, "post", "responses", String(status));
		const answer = await response.json();
		expect(answer).not.toEqual({});
		expect(errorsIn(answer, schemaOf(described))).toEqual([]);
		for (const name of Object.keys(object(described.headers ?? {}))) expect(response.headers.has(name)).toBe(true);
	});

	test("accepts a body with the content coding gzip", async () => {
		const response = await fetch(url(), {
			method: "POST",
			headers: { ...json, "X-Access-Token": KEY, "Content-Encoding": "gzip" },
			body: gzipSync(body),
		});
		expect(await response.json()).toEqual({ success: true });
	});
});

test("a captured body fits the document's schema of a record, and a damaged one does not", () => {
	const { json } = corpusBody("acp-full--update-after-run");
	expect(errorsIn(json, "ConversationInfo")).toEqual([]);
	expect(errorsIn({ ...json, max_iterations: 0 }, "ConversationInfo")).toMatchObject([
		{ instancePath: "/max_iterations", keyword: "exclusiveMinimum" },
	]);
});

describe("the examples", () => {
	const example = (name: string): JsonObject =>
		at(document, "paths", PATH, "post", "requestBody", "content", "application/json", "examples", name, "value");
	const headers = { "Content-Type": "application/json", "X-Access-Token": KEY };
	const post = (json: JsonObject) =>
		fetch(`${service.http}${PATH}`, { method: "POST", headers, body: JSON.stringify(json) });

	test("of records are parts of a captured body, and are accepted and returned", async () => {
		const { json } = corpusBody("acp-full--update-after-run");
		const finished = example("finished");
		expect(json).toMatchObject(finished);
		expect(json).toMatchObject({ ...example("started"), execution_status: "finished" });
		for (const record of [example("started"), finished]) expect((await post(record)).status).toBe(200);
		const read = await fetch(`${service.http}${READS}/${String(finished.id)}`, { headers });
		expect(await read.json()).toMatchObject(finished);

		const list = object(JSON.parse(await (await fetch(`${service.http}${READS}?tag=acp:1`, { headers })).text()));
		expect(withoutReceipt(list, "conversations")).toEqual(withoutReceipt(listExample(READS, "one"), "conversations"));
	});

	const listExample = (path: string, name: string): JsonObject => {
		const { content } = at(document, "paths", path, "get", "responses", "200");
		return at(content, "application/json", "examples", name, "value");
	};
	/** Returns a page without the sequences and times of receipt of its entries. */
	const withoutReceipt = (page: JsonObject, entries: string): JsonObject => {
		const list = page[entries];
		if (!Array.isArray(list)) throw new TypeError(`the page has no ${entries}`);
		const rest = list.map((entry) => {
			const { sequence: _, received_at: __, ...others } = object(entry);
			// The sender is the name of the key.
			return JSON.parse(JSON.stringify(others).replace('"sender":"test"', '"sender":"agent-server"'));
		});
		return { ...page, [entries]: rest };
	};

	test("of events fit their schema, are accepted and returned, and without a kind are refused as documented", async () => {
		const content = at(document, "paths", EVENTS, "post", "requestBody", "content", "application/json");
		expect(content.schema).toEqual({ type: "array", items: { $ref: "#/components/schemas/ConversationEvent" } });
		const { value } = at(content, "examples", "finished");
		if (!Array.isArray(value)) throw new TypeError("the example is no batch");
		for (const event of value) expect(errorsIn(event, "ConversationEvent")).toEqual([]);
		const id = "048c31eb-670a-4b4a-ad4b-afd97508c3e9";
		const url = service.http + EVENTS.replace("{conversation_id}", id);
		const post = (json: JsonValue) => fetch(url, { method: "POST", headers, body: JSON.stringify(json) });
		expect(await (await post(value)).json()).toEqual({ success: true });
		const [first, second] = value;
		const { kind: _, ...damaged } = object(second);
		const refused = at(
			document,
			"paths",
			EVENTS,
			"post",
			"responses",
			"422",
			"content",
			"application/json",
			"examples",
		);
		expect(await (await post([first ?? null, damaged])).json()).toEqual(at(refused, "refused", "value"));
		const answer = object(JSON.parse(await (await fetch(`${service.http}${READS}/${id}/events`, { headers })).text()));
		expect(answer).toMatchObject({ events: value.map((event) => ({ event })), next_page_token: "" });
		expect(errorsIn(answer, "ListConversationEventsResponse")).toEqual([]);
		const page = listExample(`${READS}/{id}/events`, "run");
		expect(errorsIn(page, "ListConversationEventsResponse")).toEqual([]);
		expect(withoutReceipt(answer, "events")).toEqual(withoutReceipt(page, "events"));
	});

	test("of a refusal is the response to a damaged record", async () => {
		const { workspace: _, ...others } = example("started");
		const damaged = { ...others, max_iterations: 0 };
		const refused = at(document, "paths", PATH, "post", "responses", "422", "content", "application/json", "examples");
		expect(await (await post(damaged)).json()).toEqual(at(refused, "refused", "value"));
	});
});

describe("the reads", () => {
	const parametersOf = (path: string): JsonObject[] => {
		const { parameters } = at(document, "paths", path, "get");
		return Array.isArray(parameters) ? parameters.map(object) : [];
	};

	test("the responses of the list and the record are as documented, and so are the parameters of reads", async () => {
		const { json } = corpusBody("acp-full--update-after-run");
		const headers = { "Content-Type": "application/json", "X-Access-Token": KEY };
		await fetch(`${service.http}${PATH}`, { method: "POST", headers, body: JSON.stringify(json) });
		const answer = async (path: string): Promise<JsonObject> =>
			object(JSON.parse(await (await fetch(service.http + path, { headers })).text()));
		const list = await answer(`${READS}?view=full`);
		expect(list.conversations).not.toEqual([]);
		expect(errorsIn(list, "ListConversationsResponse")).toEqual([]);
		const updates = await answer(`${READS}/${String(json.id)}/updates?view=full`);
		expect(updates.updates).not.toEqual([]);
		expect(errorsIn(updates, "ListConversationUpdatesResponse")).toEqual([]);
		const read = await answer(`${READS}/${String(json.id)}?secrets=encrypted`);
		expect(read.id).toBe(json.id);
		expect(errorsIn(read, "ConversationInfo")).toEqual([]);
		expect(parametersOf(`${READS}/{id}`).map(({ name, in: place }) => [name, place])).toEqual([
			["id", "path"],
			["sequence", "query"],
			["secrets", "query"],
		]);
		expect(parametersOf(`${READS}/{id}/events`)[0]).toMatchObject({ name: "id", in: "path", required: true });
	});
});

describe("the parameters", () => {
	const UUID = "048c31eb-670a-4b4a-ad4b-afd97508c3e8";
	/** Texts that are judged by more than a schema can say. */
	const TEXTS: Readonly<Record<string, string>> = { page_token: "", time_zone: "Europe/Berlin" };
	/** Parameters without which an operation is refused. */
	const REQUIRED: Readonly<Record<string, Readonly<Record<string, string>>>> = {
		[SEARCH]: { query: "x" },
		[READS]: { order_score: "x" },
		"/api/v1/scores": { conversation_id: UUID },
		"/api/v1/scores/report": { name: "x" },
	};
	type Values = readonly string[];

	/** Returns values of a parameter at and beyond each bound of its schema: each the values of one request. */
	function bounds(schema: JsonObject): { readonly inside: readonly Values[]; readonly outside: readonly Values[] } {
		const { type, format, pattern, minimum, maximum, minLength, maxLength, items, maxItems, uniqueItems } = schema;
		const words = wordsOf(schema);
		if (words !== undefined) return { inside: words.map((word) => [word]), outside: [["no-such-word"]] };
		switch (type) {
			case "array": {
				const each = bounds(object(items));
				const many = (count: number) => Array.from({ length: count }, (_, n) => sampleOf(object(items), n));
				return {
					inside: [...each.inside, ...(typeof maxItems === "number" ? [many(maxItems)] : [])],
					outside: [
						...each.outside,
						...(typeof maxItems === "number" ? [many(maxItems + 1)] : []),
						...(uniqueItems === true ? [[sampleOf(object(items), 0), sampleOf(object(items), 0)]] : []),
					],
				};
			}
			case "integer": {
				const [least, most] = [BigInt(String(minimum)), format === "int64" ? 2n ** 63n - 1n : BigInt(String(maximum))];
				return {
					inside: [[String(least)], [String(most)]],
					outside: [[String(least - 1n)], [String(most + 1n)], ["1.5"], ["x"], [""]],
				};
			}
			case "number":
				return { inside: [["0"], ["-1.5"], ["1e3"]], outside: [["x"], [""], ["1,5"]] };
			case "boolean":
				return { inside: [["true"], ["false"]], outside: [["1"], ["TRUE"], [""]] };
		}
		if (format === "uuid") return { inside: [[UUID]], outside: [["x"], [`${UUID}0`], [UUID.slice(1)]] };
		if (format === "date-time")
			return {
				inside: [["2026-01-31T12:00:00Z"], ["2026-01-31T12:00:00.5+02:00"]],
				outside: [["x"], ["2026-02-30T12:00:00Z"]],
			};
		if (typeof pattern === "string") {
			const texts = ["", "0", "1", "9".repeat(18), "9".repeat(20), "model", "models", "tag:", "tag:a", "a:b", ":", "a"];
			const fits = (text: string) => new RegExp(pattern, "u").test(text);
			return {
				inside: texts.filter(fits).map((text) => [text]),
				outside: texts.filter((text) => !fits(text)).map((text) => [text]),
			};
		}
		return {
			inside: [["x"], ...(typeof maxLength === "number" ? [["😀".repeat(maxLength)]] : [])],
			outside: [
				...(typeof maxLength === "number" ? [["x".repeat(maxLength + 1)]] : []),
				...(typeof minLength === "number" ? [["x".repeat(minLength - 1)]] : []),
			],
		};
	}

	function wordsOf(schema: JsonObject): string[] | undefined {
		if (Array.isArray(schema.enum)) return schema.enum.map(String);
		if (typeof schema.$ref !== "string") return undefined;
		return wordsOf(at(document, "components", "schemas", schema.$ref.replace("#/components/schemas/", "")));
	}

	/** Returns one of many different values that an item may have. */
	function sampleOf(schema: JsonObject, n: number): string {
		if (schema.format === "uuid") return UUID.slice(0, -4) + String(n).padStart(4, "0");
		if (typeof schema.pattern !== "string") return `x${n}`;
		return schema.pattern.includes("tag:") ? `tag:${n}` : `k${n}:v`;
	}

	interface Case {
		readonly method: string;
		readonly path: string;
		readonly name: string;
		readonly place: string;
		readonly schema: JsonObject;
		readonly description: JsonValue | undefined;
	}
	const cases = (): Case[] =>
		Object.entries(object(document.paths)).flatMap(([path, operations]) =>
			Object.entries(object(operations)).flatMap(([method, operation]) => {
				const { parameters = [] } = object(operation);
				if (!Array.isArray(parameters)) throw new TypeError("no list of parameters");
				return parameters.map(object).map(({ name, in: place, schema, description }) => ({
					...{ method, path, name: String(name), place: String(place), schema: object(schema), description },
				}));
			}),
		);

	/** The webhook of events takes a list, an endpoint an object. */
	const bodyFor = (path: string) => (path.startsWith(ENDPOINTS) ? "{}" : "[]");

	async function statusOf({ method, path, name, place }: Case, values: Values): Promise<number> {
		const own = (segment: string) => {
			if (place === "path" && segment === name) return encodeURIComponent(values[0] ?? "");
			return segment === "name" ? "x" : UUID;
		};
		const query = new URLSearchParams(REQUIRED[path]);
		if (place === "query") {
			query.delete(name);
			for (const value of values) query.append(name, value);
		}
		const url = `${service.http}${path.replaceAll(/\{(\w+)\}/g, (_, segment: string) => own(segment))}?${query}`;
		const headers = {
			"X-Access-Token": method === "delete" ? ERASER : KEY,
			"Content-Type": "application/json",
			...(place === "header" ? { [name]: values[0] ?? "" } : {}),
		};
		const response = await fetch(url, {
			method: method.toUpperCase(),
			headers,
			body: method === "post" ? bodyFor(path) : null,
		});
		await response.body?.cancel();
		return response.status;
	}

	test("are judged as their schemas say, just inside and just outside of each bound", async () => {
		const wrong: unknown[] = [];
		let count = 0;
		for (const one of cases()) {
			expect(one.description).toMatch(/./);
			const text = TEXTS[one.name];
			const { inside, outside } = text === undefined ? bounds(one.schema) : { inside: [[text]], outside: [] };
			for (const [isInside, list] of [
				[true, inside],
				[false, outside],
			] as const)
				for (const values of list) {
					// An empty segment is another path, and an empty header field is none.
					if (one.place !== "query" && values[0] === "") continue;
					const status = await statusOf(one, values);
					count += 1;
					// Too many values for a URL are refused before they are read; a webhook refuses a path as a body.
					const isRefused = status === 400 || status === 422 || status === 431;
					const isTooLong = isInside && status === 431 && values.length > 100;
					if (isRefused === isInside && !isTooLong)
						wrong.push([one.method, one.path, one.name, values.join().slice(0, 80), status]);
				}
		}
		expect(wrong).toEqual([]);
		expect(count).toBeGreaterThan(500);
	});

	test("of lists have all keywords by which they are judged", () => {
		const schemaOf = (path: string, wanted: string) =>
			cases().find((one) => one.path === path && one.name === wanted)?.schema;
		expect({
			id: schemaOf(`${READS}/{id}`, "id"),
			sequence: schemaOf(`${READS}/{id}`, "sequence"),
			page_size: schemaOf(READS, "page_size"),
			title_contains: schemaOf(READS, "title_contains"),
			ids: schemaOf(READS, "id"),
			tag: schemaOf(READS, "tag"),
			top: schemaOf(USAGE, "top"),
			query: schemaOf(SEARCH, "query"),
			post: schemaOf(`${REFUSED_POSTS}/{id}`, "id"),
		}).toEqual({
			id: { type: "string", format: "uuid" },
			sequence: { type: "integer", format: "int64", minimum: 1, maximum: Number(2n ** 63n - 1n) },
			page_size: { type: "integer", format: "int32", minimum: 0, maximum: 2147483647 },
			title_contains: { type: "string", maxLength: 1024 },
			ids: { type: "array", items: { type: "string", format: "uuid" }, maxItems: 1000 },
			tag: { type: "array", items: { type: "string", pattern: "^([^:]+):(.*)$" }, maxItems: 32 },
			top: { type: "integer", format: "int32", minimum: 0, maximum: 1000 },
			query: { type: "string", minLength: 1, maxLength: 1000 },
			post: { type: "string", pattern: "^[1-9]\\d{0,18}$" },
		});
	});
});

/** Returns the errors that a schema of the document finds in a value. */
function errorsIn(json: unknown, schema: string): unknown[] {
	const { components } = document;
	if (components === undefined) throw new TypeError("no components");
	const validate = compileSchema({ $ref: `#/components/schemas/${schema}`, components });
	validate(json);
	return validate.errors ?? [];
}

test("with a base path the document stays at /openapi.json, and its paths begin with the base path", async () => {
	await using based = await startTestService({ BASE_PATH: "/bridge/v2", LOG_LEVEL: "silent" });
	const paths = Object.keys(object((await fetchDocument(based)).paths));
	expect(paths).toEqual(PATHS.map((path) => `/bridge/v2${path}`));
	const headers = { "Content-Type": "application/json", "X-Access-Token": KEY };
	const [webhook, , reads] = paths;
	const posted = await fetch(`${based.http}${webhook}`, { method: "POST", headers, body: JSON.stringify(record()) });
	const listed = await fetch(`${based.http}${reads}`, { headers });
	expect([posted.status, listed.status]).toEqual([200, 200]);
});
