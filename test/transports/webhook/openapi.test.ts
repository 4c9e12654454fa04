import { gzipSync } from "node:zlib";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { deriveJsonSchemas } from "../../../src/record/json-schema.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { corpusBody, object, record } from "../../support/fixtures.ts";
import { compileSchema } from "../../support/json-schema.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const READER = "reader-key";
const PATH = "/api/v1/webhooks/conversations";

let service: TestService;
let document: JsonObject;

beforeAll(async () => {
	service = await startTestService({
		ACCESS_KEYS: `test:${KEY},reader:${READER}:read`,
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

/** The value at member names inside a JSON object. */
function at(json: JsonValue | undefined, ...names: string[]): JsonObject {
	return object(names.reduce<JsonValue | undefined>((inner, name) => object(inner)[name], json));
}

test("the document is a valid OpenAPI 3.1 document whose references lead somewhere", async () => {
	const validator = new Validator();
	expect(await validator.validate(structuredClone(document))).toEqual({ valid: true });
	expect(validator.version).toBe("3.1");
});

test("a damaged document is not valid", async () => {
	const damaged = structuredClone(document);
	at(damaged, "paths", PATH, "post").responses = { 200: { description: 1 } };
	expect(await new Validator().validate(damaged)).toMatchObject({ valid: false });
	const dangling = structuredClone(document);
	delete at(dangling, "components", "schemas").LLM;
	expect(await new Validator().validate(dangling)).toMatchObject({ valid: false });
});

test("version, path, operation, tag and security scheme are the specification's", () => {
	const { openapi, info, paths, tags } = document;
	expect({ openapi, version: object(info).version, paths: Object.keys(object(paths)), tags }).toEqual({
		openapi: "3.1.0",
		version: "0.0.1",
		paths: [PATH],
		tags: [{ name: "Webhooks", description: expect.any(String) }],
	});
	const { operationId, tags: operationTags, security, requestBody } = at(paths, PATH, "post");
	expect({ operationId, operationTags, security, requestBody }).toEqual({
		operationId: "on_conversation_update_api_v1_webhooks_conversations_post",
		operationTags: ["Webhooks"],
		security: [{ APIKeyHeader: [] }],
		requestBody: {
			description: expect.any(String),
			required: true,
			content: { "application/json": { schema: { $ref: "#/components/schemas/ConversationInfo" } } },
		},
	});
	expect(at(document, "components", "securitySchemes")).toEqual({
		APIKeyHeader: { type: "apiKey", in: "header", name: "X-Access-Token" },
	});
});

test("the schemas are the record's and those of the answers", () => {
	expect(at(document, "components", "schemas")).toEqual({
		...deriveJsonSchemas(new RecordFormat().plan, "#/components/schemas/"),
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

test("each status has the schema of its body", () => {
	const responses = Object.entries(at(document, "paths", PATH, "post", "responses"));
	expect(responses.map(([status, response]) => [status, schemaOf(response)])).toEqual([
		["200", "Success"],
		["400", "Failure"],
		["401", "Failure"],
		["403", "Failure"],
		["413", "Failure"],
		["415", "Failure"],
		["422", "HTTPValidationError"],
		["500", "Failure"],
		["503", "Failure"],
	]);
});

function schemaOf(response: JsonValue): string {
	return String(at(response, "content", "application/json", "schema").$ref).replace("#/components/schemas/", "");
}

describe("what the webhook answers is what the document says", () => {
	const body = JSON.stringify(record());
	const json = { "Content-Type": "application/json" };
	test.each<[number, string, Record<string, string>]>([
		[200, body, { ...json, "X-Access-Token": KEY }],
		[400, body, { ...json, "X-Access-Token": KEY, "Content-Encoding": "gzip" }],
		[401, body, { ...json, "X-Access-Token": "another key" }],
		[403, body, { ...json, "X-Access-Token": READER }],
		[413, " ".repeat(20_001), { ...json, "X-Access-Token": KEY }],
		[415, body, { "Content-Type": "text/plain", "X-Access-Token": KEY }],
		[422, JSON.stringify({ id: 1, hook_config: { Stop: [] } }), { ...json, "X-Access-Token": KEY }],
	])("%i", async (status, text, headers) => {
		const response = await fetch(`${service.http}${PATH}`, { method: "POST", headers, body: Buffer.from(text) });
		expect(response.status).toBe(status);
		const described = at(document, "paths", PATH, "post", "responses", String(status));
		const answer = await response.json();
		expect(answer).not.toEqual({});
		expect(errorsIn(answer, schemaOf(described))).toEqual([]);
		for (const name of Object.keys(object(described.headers ?? {}))) expect(response.headers.has(name)).toBe(true);
	});

	test("a body with the content coding gzip is taken", async () => {
		const response = await fetch(`${service.http}${PATH}`, {
			method: "POST",
			headers: { ...json, "X-Access-Token": KEY, "Content-Encoding": "gzip" },
			body: gzipSync(body),
		});
		expect(await response.json()).toEqual({ success: true });
	});
});

test("a real body fits the document's schema of a record, and a damaged one does not", () => {
	const { json } = corpusBody("acp-full--update-after-run");
	expect(errorsIn(json, "ConversationInfo")).toEqual([]);
	expect(errorsIn({ ...json, max_iterations: 0 }, "ConversationInfo")).toMatchObject([
		{ instancePath: "/max_iterations", keyword: "exclusiveMinimum" },
	]);
});

/** What a schema of the document finds wrong with a value. */
function errorsIn(json: unknown, schema: string): unknown[] {
	const { components } = document;
	if (components === undefined) throw new TypeError("no components");
	const validate = compileSchema({ $ref: `#/components/schemas/${schema}`, components });
	validate(json);
	return validate.errors ?? [];
}

test("with a base path the document stays where it is and names the path that the webhook has", async () => {
	await using based = await startTestService({ BASE_PATH: "/bridge/v2", LOG_LEVEL: "silent" });
	const paths = Object.keys(object((await fetchDocument(based)).paths));
	expect(paths).toEqual([`/bridge/v2${PATH}`]);
	const statuses = paths.map(async (path) => {
		const response = await fetch(`${based.http}${path}`, {
			method: "POST",
			headers: { "Content-Type": "application/json", "X-Access-Token": KEY },
			body: JSON.stringify(record()),
		});
		return response.status;
	});
	expect(await Promise.all(statuses)).toEqual([200]);
});

test("the document names the aliases of kinds", async () => {
	const analyzer = at(await fetchDocument(service), "components", "schemas", "SecurityAnalyzer");
	expect(at(analyzer, "discriminator", "mapping")).toMatchObject({
		GraySwanAnalyzer: "#/components/schemas/VendorRiskAnalyzer",
	});
});
