import { randomBytes, randomUUID } from "node:crypto";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ingestClient, PROTOCOLS, postWebhook } from "../support/clients.ts";
import { corpusBody, record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { BEGINNING, updatesUntilCaughtUp } from "../support/watching.ts";

/** Returns the same JSON with the members of every object in reverse order. */
function reversed(json: JsonValue): JsonValue {
	if (Array.isArray(json)) return json.map(reversed);
	if (typeof json !== "object" || json === null) return json;
	return Object.fromEntries(
		Object.entries(json)
			.reverse()
			.map(([name, value]) => [name, reversed(value)]),
	);
}

/** Returns a record with maps of every kind, some of them with secrets, and with zeros. */
function mapped(members: JsonObject = {}): JsonObject {
	return record({
		tags: { a: "1", b: "2", c: "3" },
		blocked_actions: { one: "x", two: "y" },
		agent_state: { first: 0, second: { x: 1, api_key: "s", y: [{ p: 0, q: null }] }, third: true },
		secret_registry: {
			secret_sources: {
				A: { kind: "StaticSecret", value: "one" },
				B: { kind: "LookupSecret", url: "u", headers: { x: "1", y: "2" } },
			},
		},
		agent: {
			kind: "Agent",
			llm: { model: "m", temperature: 0, extra_headers: { "X-One": "1", "X-Two": "2" }, capability_overrides: {} },
			mcp_config: { s: { command: "c", env: { TOKEN: "1", PATH: "2" } }, t: { command: "d" } },
		},
		unnamed_one: 0,
		unnamed_two: { token: "s", z: 0 },
		...members,
	});
}

describe.each([
	["without an encryption key", {}],
	["with an encryption key", { ENCRYPTION_KEY: randomBytes(32).toString("base64") }],
])("%s, a record that is posted again", (_, env) => {
	let service: TestService;

	beforeAll(async () => {
		service = await startTestService(env);
	});
	afterAll(() => service[Symbol.asyncDispose]());

	async function post(text: string): Promise<void> {
		const response = await postWebhook(service, KEY, text);
		expect([response.status, await response.text()]).toEqual([200, '{"success":true}']);
	}

	function updatesOf({ id }: JsonObject) {
		return updatesUntilCaughtUp(service, KEY, { start: BEGINNING, conversationId: String(id) });
	}

	test.each([
		["maps of every kind", mapped()],
		["a captured body", { ...corpusBody("acp-full--update-after-run").json, id: randomUUID() }],
		["a captured body with tools", { ...corpusBody("agent-context-big--start").json, id: randomUUID() }],
	])("with its members in another order is a duplicate over every protocol: %s", async (_name, json) => {
		const other = JSON.parse(JSON.stringify(reversed(json)));
		await post(JSON.stringify(json));
		await post(JSON.stringify(other));
		for (const protocol of PROTOCOLS)
			for (const again of [json, other]) {
				const answer = await ingestClient(service, protocol, KEY).ingestConversation(ingestRequest(again));
				expect([protocol, answer.repetition]).toEqual([protocol, true]);
			}
		await post(JSON.stringify(other));
		expect(await updatesOf(json)).toHaveLength(1);
	});

	test("with -0.0 in place of 0.0 is a duplicate", async () => {
		const json = mapped();
		const text = JSON.stringify(json);
		expect(text).toContain('"temperature":0');
		await post(text);
		await post(text.replace('"temperature":0', '"temperature":-0.0'));
		await post(text.replace('"first":0', '"first":-0.0').replace('"p":0', '"p":-0.0'));
		await post(text.replace('"unnamed_one":0', '"unnamed_one":-0.0').replace('"z":0', '"z":-0.0'));
		const request = ingestRequest(json);
		const agent = request.conversation?.agent?.kind;
		if (agent?.case !== "agent" || agent.value.llm === undefined) throw new Error("unreachable");
		agent.value.llm.temperature = -0;
		const answer = await ingestClient(service, "gRPC", KEY).ingestConversation(request);
		expect(answer.repetition).toBe(true);
		expect(await updatesOf(json)).toHaveLength(1);
	});

	test.each([
		["an array in another order", mapped({ invoked_skills: ["a", "b"] }), { invoked_skills: ["b", "a"] }],
		["one more tag", mapped(), { tags: { a: "1", b: "2", c: "3", d: "4" } }],
		["a tag with another value", mapped(), { tags: { a: "1", b: "2", c: "4" } }],
		["two values of a map exchanged", mapped(), { blocked_actions: { one: "y", two: "x" } }],
		["another unnamed member", mapped(), { unnamed_one: 1 }],
		["a number that is nearly zero", mapped({ agent_state: { a: 0 } }), { agent_state: { a: 5e-324 } }],
	])("with %s is a new update", async (_name, json, change) => {
		await post(JSON.stringify(json));
		await post(JSON.stringify({ ...json, ...change }));
		expect(await updatesOf(json)).toHaveLength(2);
	});

	// Without an encryption key, secrets are redacted, so records that differ only in secrets are stored alike.
	test(`with another secret is ${"ENCRYPTION_KEY" in env ? "a new update" : "a duplicate"}`, async () => {
		const json = record({ agent_state: { api_key: "one" } });
		await post(JSON.stringify(json));
		await post(JSON.stringify({ ...json, agent_state: { api_key: "two" } }));
		expect(await updatesOf(json)).toHaveLength("ENCRYPTION_KEY" in env ? 2 : 1);
	});
});
