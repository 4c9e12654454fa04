import { randomBytes } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { getText, postWebhook } from "../support/clients.ts";
import { expectedJson } from "../support/expected-json.ts";
import { capturedSequences, object, record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { withSpecificationNames } from "../support/vendor-names.ts";
import { BEGINNING, updatesUntilCaughtUp } from "../support/watching.ts";

const { plan } = new RecordFormat();
let service: TestService;

beforeAll(async () => {
	// Only an encryption key is configured, so that secrets can be read back as they were sent.
	service = await startTestService({ ENCRYPTION_KEY: randomBytes(32).toString("base64") });
});
afterAll(() => service[Symbol.asyncDispose]());

async function post(body: string): Promise<{ status: number; json: unknown }> {
	const response = await postWebhook(service, KEY, body);
	return { status: response.status, json: await response.json() };
}

async function read(id: unknown): Promise<JsonObject> {
	return object(JSON.parse(await getText(service, KEY, String(id), "secrets=plaintext")));
}

describe("the records of a captured sequence of the real sender", () => {
	const sequences = capturedSequences().map(({ name, posts }) => {
		const bodies = posts.filter(({ webhook }) => webhook === "conversations").map(({ body }) => body);
		return { name, bodies };
	});

	test.each(sequences)("$name are accepted as current updates, and the last is read back", async ({ bodies }) => {
		for (const body of bodies) expect(await post(body)).toEqual({ status: 200, json: { success: true } });
		const sent = bodies.map(withSpecificationNames);
		for (const id of new Set(sent.map((json) => String(json.id)))) {
			const own = sent.filter((json) => json.id === id);
			expect(await read(id)).toEqual(expectedJson(plan, own.at(-1) ?? {}));
			const updates = await updatesUntilCaughtUp(service, KEY, { start: BEGINNING, conversationId: id });
			// The sender posts the same body again when nothing has changed.
			const distinct = own.filter((json, index) => JSON.stringify(json) !== JSON.stringify(own[index - 1]));
			expect(updates.map(({ current }) => current)).toEqual(distinct.map(() => true));
			expect(updates.map(({ change }) => change)).toEqual(
				distinct.map((json, index) => changeOf(distinct[index - 1], json)),
			);
		}
	});
});

const CHANGES: Readonly<Record<string, UpdateChange>> = {
	deleting: UpdateChange.DELETED,
	paused: UpdateChange.PAUSED,
	running: UpdateChange.RUNNING,
	waiting_for_confirmation: UpdateChange.WAITING,
	finished: UpdateChange.FINISHED,
	error: UpdateChange.FAILED,
	stuck: UpdateChange.STUCK,
};

function changeOf(before: JsonObject | undefined, after: JsonObject): UpdateChange {
	const [was, is] = [before?.execution_status, after.execution_status];
	if (before === undefined) return UpdateChange.STARTED;
	if (was === is) return UpdateChange.UPDATED;
	if (was === "paused" && (is === "idle" || is === "running")) return UpdateChange.RESUMED;
	return CHANGES[String(is)] ?? UpdateChange.UPDATED;
}

describe("the real sender's names", () => {
	const native = (llm: JsonObject) => record({ agent: { kind: "Agent", llm: { model: "m", ...llm } } });

	test.each<[string, JsonObject]>([
		["the site's URL", native({ openrouter_site_url: "https://site" })],
		["the application's name", native({ openrouter_app_name: "app" })],
		["the extra body", native({ litellm_extra_body: { a: [1, { b: null }] } })],
		["an analyzer", record({ security_analyzer: { kind: "GraySwanAnalyzer", policy_id: "p" } })],
		[
			"an analyzer in an ensemble",
			record({
				security_analyzer: {
					kind: "EnsembleSecurityAnalyzer",
					analyzers: [{ kind: "ToolShieldLLMSecurityAnalyzer", llm: { model: "m", openrouter_app_name: "app" } }],
				},
			}),
		],
	])("are read back as the names of the specification: %s", async (_, json) => {
		const text = JSON.stringify(json);
		expect(await post(text)).toEqual({ status: 200, json: { success: true } });
		expect(await read(json.id)).toEqual(expectedJson(plan, withSpecificationNames(text)));
	});

	test.each(["claude-code", "codex", "gemini-cli"])("of ACP servers are read back unchanged: %s", async (provider) => {
		const json = record({ agent: { kind: "ACPAgent", acp_command: ["a"], acp_server: provider } });
		expect((await post(JSON.stringify(json))).status).toBe(200);
		expect(await read(json.id)).toMatchObject({ agent: { acp_server: provider } });
	});

	test.each<[string, JsonObject, Readonly<Record<string, unknown>>]>([
		[
			"openrouter_site_url",
			native({ openrouter_site_url: 5 }),
			{ type: "string_type", loc: ["body", "agent", "llm", "openrouter_site_url"] },
		],
		[
			"litellm_extra_body",
			native({ litellm_extra_body: [] }),
			{ type: "dict_type", loc: ["body", "agent", "llm", "litellm_extra_body"] },
		],
		[
			"async_",
			record({ hook_config: { stop: [{ hooks: [{ command: "c", async_: "x" }] }] } }),
			{ type: "bool_parsing", loc: ["body", "hook_config", "stop", 0, "hooks", 0, "async_"] },
		],
	])("appear in violations as they were sent: %s", async (_, json, violation) => {
		const { status, json: answer } = await post(JSON.stringify(json));
		expect(status).toBe(422);
		expect(answer).toEqual({ detail: [expect.objectContaining(violation)] });
	});
});
