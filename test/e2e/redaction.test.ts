import { randomBytes } from "node:crypto";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RecordFormat } from "../../src/record/record-format.ts";
import { getText, postWebhook } from "../support/clients.ts";
import { expectedJson } from "../support/expected-json.ts";
import { corpusBody, record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const { plan } = new RecordFormat();
const SECRET = "s3cr3t-canary";
const HIDDEN = "**********";

describe.each([
	["redacted", {}],
	["encrypted", { ENCRYPTION_KEY: randomBytes(32).toString("base64") }],
])("when secrets are stored %s", (_, env) => {
	let service: TestService;

	beforeAll(async () => {
		service = await startTestService(env);
	});
	afterAll(() => service[Symbol.asyncDispose]());

	/** Posts a record and returns the text of a read in the default form, redacted. */
	async function redacted(json: JsonObject): Promise<string> {
		const response = await postWebhook(service, KEY, JSON.stringify(json));
		expect([response.status, await response.text()]).toEqual([200, '{"success":true}']);
		if ("ENCRYPTION_KEY" in env) {
			// With an encryption key, a read in plaintext returns the complete record.
			const plain = JSON.parse(await getText(service, KEY, json.id, "secrets=plaintext"));
			expect(plain).toEqual(expectedJson(plan, json));
		}
		return await getText(service, KEY, json.id);
	}

	function native(llm: JsonObject, members: JsonObject = {}): JsonObject {
		return record({ agent: { kind: "Agent", llm: { model: "m", ...llm }, ...members } });
	}

	describe("JSON Schemas are returned unredacted", () => {
		const described = { type: "string", description: "The key of the provider" };
		const schema = {
			$schema: "https://json-schema.org/draft/2020-12/schema",
			type: "object",
			properties: {
				api_key: described,
				token: { anyOf: [described, { type: "null" }] },
				list: { type: "array", items: { type: "object", properties: { password: described, plain: described } } },
			},
			$defs: { login: { type: "object", properties: { secret: described } } },
			required: ["api_key"],
		};
		test.each<[string, JsonObject, (read: { [name: string]: never }) => unknown]>([
			[
				"a tool's parameters",
				{ tools: [{ name: "t", params: { spec: { name: "t", parameters: schema } } }] },
				(agent) => agent.tools,
			],
			["a tool's spec", { tools: [{ name: "t", params: { spec: schema } }] }, (agent) => agent.tools],
		])("in %s", async (_name, members, part) => {
			const json = native({}, members);
			const read = JSON.parse(await redacted(json));
			expect(part(read.agent)).toEqual(members.tools);
		});

		test("in a client tool, the agent's state and an unnamed member", async () => {
			const tool = { name: "t", description: "d", parameters: schema };
			const json = record({ client_tools: [tool], agent_state: { schema }, unnamed: { input_schema: schema } });
			expect(JSON.parse(await redacted(json))).toMatchObject({
				client_tools: [tool],
				agent_state: { schema },
				unnamed: { input_schema: schema },
			});
		});

		test("in a captured body of the real sender", async () => {
			const { json } = corpusBody("client-tools--start");
			expect(JSON.parse(await redacted(json))).toMatchObject({ client_tools: json.client_tools });
		});

		test("but strings with the name of a secret in `properties` outside of a schema are redacted", async () => {
			const text = await redacted(
				record({ agent_state: { properties: { api_key: SECRET } }, properties: { token: SECRET } }),
			);
			expect(text).not.toContain(SECRET);
		});
	});

	describe("every value in the auth of an MCP server is redacted", () => {
		const mcp = (auth: JsonValue) => native({}, { mcp_config: { s: { url: "https://x", auth } } });

		test.each<[string, JsonObject]>([
			["an unknown strategy's number", { strategy: "totp", pin: 424242, digits: [424242], nested: { pin: 424242.5 } }],
			["an unknown strategy's string", { strategy: "custom", anything: SECRET }],
			["an unnamed string of a bearer strategy", { strategy: "bearer", value: "v", anything: SECRET }],
			["an unnamed number of a bearer strategy", { strategy: "bearer", value: "v", anything: 424242 }],
			["an unnamed object of an API key strategy", { strategy: "api_key", value: "v", more: { list: [SECRET] } }],
			["the user name of a basic strategy", { strategy: "basic", username: SECRET, password: "p" }],
			["an OAuth client's secret", { strategy: "oauth2", authentication: { type: "oauth", client_secret: SECRET } }],
		])("%s", async (_name, auth) => {
			const text = await redacted(mcp(auth));
			expect(text).not.toContain(SECRET);
			expect(text).not.toContain("424242");
			expect(JSON.parse(text)).toMatchObject({ agent: { mcp_config: { s: { url: "https://x" } } } });
		});

		test("a string in place of an object", async () => {
			expect(await redacted(mcp("oauth"))).not.toContain(SECRET);
		});
	});

	describe("the value of an unnamed or free-form member", () => {
		test.each([
			"passwd",
			"passphrase",
			"credential",
			"credentials",
			"bearer",
			"private_key",
			"keyfile",
			"acp_session_id",
			"api_key",
			"apiKey",
			"ACCESS_TOKEN",
			"Authorization",
			"client_secret",
			"db_password",
			"set-cookie",
		])("named %s is redacted", async (name) => {
			const json = record({ agent_state: { [name]: SECRET, deep: [{ [name]: [SECRET] }] }, [name]: SECRET });
			const read = JSON.parse(await redacted(json));
			expect(read).toMatchObject({ agent_state: { [name]: HIDDEN, deep: [{ [name]: [HIDDEN] }] }, [name]: HIDDEN });
		});

		test.each(["monkey", "primary_key", "sort_keys", "token_budget", "max_tokens", "keyboard", "tokenizer", "keyword"])(
			"named %s is shown",
			async (name) => {
				const state = { [name]: "shown", deep: [{ [name]: "shown" }] };
				expect(JSON.parse(await redacted(record({ agent_state: state, [name]: "shown" })))).toMatchObject({
					agent_state: state,
					[name]: "shown",
				});
			},
		);
	});

	test("unnamed strings of a StaticSecret are redacted", async () => {
		const sources = { A: { kind: "StaticSecret", value: SECRET, note: SECRET, more: { list: [SECRET] } } };
		const text = await redacted(record({ secret_registry: { secret_sources: sources } }));
		expect(text).not.toContain(SECRET);
		const context = { secrets: { B: { kind: "StaticSecret", value: "v", note: SECRET } } };
		expect(await redacted(native({}, { agent_context: context }))).not.toContain(SECRET);
	});

	describe("user and password in a URL are redacted", () => {
		const URL_WITH_PASSWORD = `https://some-user:${SECRET}@host.example:8443/path?x=1`;

		test.each<[string, JsonObject]>([
			["the model's base_url", native({ base_url: URL_WITH_PASSWORD })],
			[
				"the remote host",
				record({ workspace: { kind: "RemoteWorkspace", working_dir: "/w", host: URL_WITH_PASSWORD } }),
			],
			["an MCP server's url", native({}, { mcp_config: { s: { url: URL_WITH_PASSWORD } } })],
			[
				"an MCP server's arguments",
				native({}, { mcp_config: { s: { command: "c", args: ["-u", URL_WITH_PASSWORD] } } }),
			],
			["an ACP command", record({ agent: { kind: "ACPAgent", acp_command: ["acp", URL_WITH_PASSWORD] } })],
			[
				"the URL of a secret source",
				record({ secret_registry: { secret_sources: { A: { kind: "LookupSecret", url: URL_WITH_PASSWORD } } } }),
			],
			["the agent's state", record({ agent_state: { remote: `git clone ${URL_WITH_PASSWORD}` } })],
			["an unnamed member", record({ proxy: URL_WITH_PASSWORD })],
		])("in %s", async (_name, json) => {
			const text = await redacted(json);
			expect(text).not.toContain(SECRET);
			expect(text).not.toContain("some-user");
			expect(text).toContain("@host.example:8443/path?x=1");
		});

		test("but a URL without a password is shown unchanged", async () => {
			const base = "https://host.example:8443/a@b?mail=x:y@z";
			expect(JSON.parse(await redacted(native({ base_url: base })))).toMatchObject({
				agent: { llm: { base_url: base } },
			});
		});
	});

	test.each([
		["flat", (server: JsonObject) => ({ s: server })],
		["nested", (server: JsonObject) => ({ mcpServers: { s: server } })],
	])("env, headers and auth of an MCP server are redacted in the %s form", async (_name, form) => {
		const server = {
			command: "c",
			env: { PLAIN: SECRET },
			headers: { "X-Any": SECRET },
			auth: { strategy: "bearer", value: SECRET },
		};
		const text = await redacted(native({}, { mcp_config: form(server) }));
		expect(text).not.toContain(SECRET);
		expect(text).toContain('"command":"c"');
		const acp = { kind: "ACPAgent", acp_command: ["a"], mcp_config: form(server) };
		expect(await redacted(record({ agent: acp }))).not.toContain(SECRET);
		const skill = { name: "s", content: "c", mcp_tools: form(server) };
		expect(await redacted(native({}, { agent_context: { skills: [skill] } }))).not.toContain(SECRET);
	});
});
