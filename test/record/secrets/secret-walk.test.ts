import { clone, create, type JsonObject, ScalarType } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { isSecretName, type Secret } from "../../../src/record/secrets/free-form-secrets.ts";
import { deriveSecretWalk } from "../../../src/record/secrets/secret-walk.ts";
import { REDACTED } from "../../../src/userinfo.ts";
import { object } from "../../support/fixtures.ts";
import { CONVERSATION_ID, isMarked, pointersTo, recordFields, secretPlaces } from "./secret-places.ts";

const format = new RecordFormat();
const walk = deriveSecretWalk(format.plan);

const base = {
	id: CONVERSATION_ID,
	workspace: { kind: "LocalWorkspace", working_dir: "/w" },
	agent: { kind: "ACPAgent", acp_command: ["acp"] },
};

test("the .proto files mark exactly these fields as secrets", () => {
	const marked = recordFields()
		.filter(isMarked)
		.map((field) => `${field.parent.name}.${field.name}`);
	expect(marked.toSorted()).toEqual([
		"ACPAgent.acp_resume_session_id",
		"APIBasedCritic.api_key",
		"ContextSecret.plain",
		"LLM.api_key",
		"LLM.aws_access_key_id",
		"LLM.aws_secret_access_key",
		"LLM.aws_session_token",
		"LLM.extra_headers",
		"LookupSecret.headers",
		"MCPApiKeyAuthCredential.value",
		"MCPAuth.unknown",
		"MCPBasicAuthCredential.password",
		"MCPBearerAuthCredential.value",
		"MCPHeaderAuthCredential.headers",
		"MCPOAuthAuthCredential.state",
		"MCPOAuthAuthentication.client_secret",
		"MCPServer.auth",
		"MCPServer.env",
		"MCPServer.headers",
		"RemoteWorkspace.api_key",
		"StaticSecret.value",
		"VendorRiskAnalyzer.api_key",
	]);
});

test("every string field with the name of a secret is marked, except one that names a secret", () => {
	const candidates = recordFields().filter((field) => field.scalar === ScalarType.STRING && isSecretName(field.name));
	const unmarked = candidates.filter((field) => !isMarked(field)).map((field) => `${field.parent.name}.${field.name}`);
	expect(unmarked).toEqual(["ACPFileSecretSpec.secret_name"]);
	expect(candidates.length).toBeGreaterThan(unmarked.length);
});

test("the walk visits every secret of the descriptors once, at its place in the JSON form", () => {
	const secret = "canary";
	for (const { name, plant } of secretPlaces()) {
		const record = plant(secret);
		const expected = pointersTo(secret, object(format.toJson(record))).map((pointer) => ({ name, secret, pointer }));
		const visited: typeof expected = [];
		walk(record, (found, pointer) => {
			visited.push({ name, secret: String(found), pointer });
			return `replaced ${found}`;
		});
		expect(visited).toEqual(expected);
		expect(expected).toHaveLength(1);
		expect(pointersTo(`replaced ${secret}`, object(format.toJson(record)))).toEqual(
			expected.map(({ pointer }) => pointer),
		);
	}
});

test("the walk enters unions that contain themselves, and its pointers have the indexes of list items", () => {
	const llm = (api_key: string) => ({ model: "m", api_key });
	const analyzer = {
		kind: "EnsembleSecurityAnalyzer",
		analyzers: [
			{ kind: "VendorRiskAnalyzer", api_key: "one" },
			{
				kind: "EnsembleSecurityAnalyzer",
				analyzers: [
					{ kind: "PatternSecurityAnalyzer", high_patterns: [["a", "b", "c"]] },
					{ kind: "GuardrailLLMSecurityAnalyzer", llm: llm("two") },
				],
			},
		],
	};
	const inner = { kind: "PipelineCondenser", condensers: [{ kind: "LLMSummarizingCondenser", llm: llm("three") }] };
	const condenser = { kind: "PipelineCondenser", condensers: [inner, { kind: "Novel", secret: ["", "four"] }] };
	const json = { ...base, security_analyzer: analyzer, agent: { ...base.agent, condenser } };
	const visited: [string, string][] = [];
	walk(format.fromJson(json), (secret, pointer) => {
		visited.push([String(secret), pointer]);
		return secret;
	});
	expect(visited).toEqual([
		["one", "/security_analyzer/analyzers/0/api_key"],
		["two", "/security_analyzer/analyzers/1/analyzers/1/llm/api_key"],
		["three", "/agent/condenser/condensers/0/condensers/0/llm/api_key"],
		["four", "/agent/condenser/condensers/1/secret/1"],
	]);
});

test("the walk skips empty and redacted secrets, other values and JSON Schemas", () => {
	const json = {
		...base,
		agent: {
			...base.agent,
			acp_resume_session_id: REDACTED,
			llm: { model: "m", api_key: "", aws_session_token: null },
		},
		agent_state: { token: REDACTED, tokens: 7, cookie: true, password: null, keys: [], keyword: "w", plain: "p" },
		client_tools: [
			{ name: "t", description: "d", parameters: { type: "object", properties: { token: { type: "string" } } } },
		],
		runtime_info: { status: "available", secret: "" },
	};
	const record = format.fromJson(json);
	const before = clone(ConversationInfoSchema, record);
	walk(record, (secret) => {
		throw new Error(`replaced ${secret}`);
	});
	expect(record).toEqual(before);
});

test("the walk replaces free-form JSON and does not change the objects, which may be shared", () => {
	const state = { token: "t", list: [{ other: 1 }, { cookie: ["c"] }] };
	const record = create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: state });
	walk(record, () => "x");
	expect(state).toEqual({ token: "t", list: [{ other: 1 }, { cookie: ["c"] }] });
	expect(record.agentState).toEqual({ token: "x", list: [{ other: 1 }, { cookie: ["x"] }] });
});

/** Returns the secret strings and numbers of a record with their JSON Pointers. */
function secretsOf(json: JsonObject): [Secret, string][] {
	const visited: [Secret, string][] = [];
	walk(format.fromJson(json), (secret, pointer) => {
		visited.push([secret, pointer]);
		return secret;
	});
	return visited;
}

const native = (members: JsonObject) => ({ ...base, agent: { kind: "Agent", ...members } });

describe("JSON Schemas in free-form JSON", () => {
	const schema = {
		type: "object",
		required: ["api_key"],
		properties: {
			api_key: { type: "string", description: "the key", default: "sk-1", examples: ["sk-2"], title: "Key" },
			password: { anyOf: [{ type: "string", const: "pw-1" }, { type: "null" }] },
			token: { $ref: "#/$defs/Token" },
			secret: { type: "object", properties: { value: { type: "string", enum: ["pw-2"], format: "password" } } },
			plain: { type: "object", default: { cookie: "pw-3", other: "shown" } },
		},
		$defs: { Token: { type: "string", pattern: "^t" } },
	};
	const found = (at: string) => [
		["sk-1", `${at}/properties/api_key/default`],
		["sk-2", `${at}/properties/api_key/examples/0`],
		["pw-1", `${at}/properties/password/anyOf/0/const`],
		["pw-2", `${at}/properties/secret/properties/value/enum/0`],
		["pw-3", `${at}/properties/plain/default/cookie`],
	];

	test("have secrets only in their values (default, examples, const, enum) under the name of a secret", () => {
		const tool = { name: "t", params: { spec: { name: "t", description: "d", parameters: schema } } };
		expect(secretsOf(native({ tools: [tool] }))).toEqual(found("/agent/tools/0/params/spec/parameters"));
		expect(secretsOf({ ...base, client_tools: [{ name: "t", description: "d", parameters: schema }] })).toEqual(
			found("/client_tools/0/parameters"),
		);
		expect(secretsOf({ ...base, vendor: { schema } })).toEqual(found("/vendor/schema"));
	});

	test("are objects: a string in a member named properties is judged by its name", () => {
		expect(secretsOf({ ...base, agent_state: { properties: { api_key: "sk-1", plain: "p" } } })).toEqual([
			["sk-1", "/agent_state/properties/api_key"],
		]);
	});
});

describe("values that are secret as a whole", () => {
	test.each<[string, JsonObject | string, [Secret, string][]]>([
		[
			"an unknown strategy",
			{ strategy: "totp", pin: 424242, on: true },
			[
				["totp", "/strategy"],
				[424242, "/pin"],
			],
		],
		["a string", "a token", [["a token", ""]]],
		[
			"members beside known ones",
			{ strategy: "bearer", value: "v", hint: "h", at: [7] },
			[
				["v", "/value"],
				["h", "/hint"],
				[7, "/at/0"],
			],
		],
		[
			"a user name",
			{ strategy: "basic", username: "u", password: "p" },
			[
				["u", "/username"],
				["p", "/password"],
			],
		],
	])("the strings and numbers of MCP auth, except a known strategy: %s", (_, auth, expected) => {
		const server: JsonObject = { s: { auth } };
		const skill: JsonObject = { name: "n", content: "c", mcp_tools: server };
		const places: [string, JsonObject][] = [
			["/agent/mcp_config/s/auth", { mcp_config: server }],
			["/agent/agent_context/skills/0/mcp_tools/s/auth", { agent_context: { skills: [skill] } }],
		];
		for (const [place, members] of places)
			expect(secretsOf(native(members))).toEqual(expected.map(([secret, at]) => [secret, `${place}${at}`]));
	});

	test("the strings of a StaticSecret, also unnamed ones, but not its numbers", () => {
		const secret = { kind: "StaticSecret", value: "v", hint: "h", more: { list: ["l"] }, count: 3 };
		const expected = (at: string) => [
			["v", `${at}/value`],
			["h", `${at}/hint`],
			["l", `${at}/more/list/0`],
		];
		expect(secretsOf({ ...base, secret_registry: { secret_sources: { A: secret } } })).toEqual(
			expected("/secret_registry/secret_sources/A"),
		);
		expect(secretsOf(native({ agent_context: { secrets: { A: secret } } }))).toEqual(
			expected("/agent/agent_context/secrets/A"),
		);
	});
});

describe("MCP servers below the name mcpServers", () => {
	const server = {
		command: "c",
		env: { PORT: "80" },
		headers: { H: "x" },
		auth: { strategy: "new", pin: 1 },
		cwd: "w",
	};
	const expected = (at: string) => [
		["80", `${at}/env/PORT`],
		["x", `${at}/headers/H`],
		["new", `${at}/auth/strategy`],
		[1, `${at}/auth/pin`],
	];

	test.each<[string, JsonObject]>([
		["/agent/mcp_config/mcpServers/a", native({ mcp_config: { mcpServers: { a: server } } })],
		[
			"/agent/agent_context/skills/0/mcp_tools/mcpServers/a",
			native({ agent_context: { skills: [{ name: "n", content: "c", mcp_tools: { mcpServers: { a: server } } }] } }),
		],
		["/agent_state/mcpServers/a", { ...base, agent_state: { mcpServers: { a: server } } }],
		["/vendor/mcpServers/a", { ...base, vendor: { mcpServers: { a: server } } }],
	])("have secrets in env, headers and auth, as servers in fields do: %s", (at, json) => {
		expect(secretsOf(json)).toEqual(expected(at));
		expect(format.toJson(format.fromJson(json))).toMatchObject(json);
	});
});

test.each(
	[
		["key", "keys", "api_key", "apiKey", "APIKey", "APIKEYValue", "x-api-key", "key2", "accessKeyId", "SSH_KEY"],
		["token", "tokens", "session.token", "TOKENValue", "idToken", "apikey", "accesstoken"],
		[
			"secret",
			"clientSecret",
			"password",
			"PASSWORD_1",
			"Authorization",
			"proxy-authorization",
			"Cookie",
			"set-cookie",
		],
		["passwd", "db_passwd", "passphrase", "credential", "awsCredentials", "bearer", "private_key", "privatekey"],
		["reference_token", "secret_refs_value", "preferred_secret", "secretreference"],
		["keyfile", "key_file", "acp_session_id", "acpSessionId"],
		[
			"pwd",
			"DB_PWD",
			"jwt",
			"idJwt",
			"pat",
			"GITHUB_PAT",
			"dsn",
			"SENTRY_DSN",
			"connection_string",
			"connectionString",
		],
	].flat(),
)("the name %s is the name of a secret", (name) => {
	expect(isSecretName(name)).toBe(true);
});

test.each(
	[
		["", "keyword", "keyboard_layout", "tokenizer", "tokenized", "model", "name", "pass", "author", "session"],
		["secret_refs", "secretRef", "SECRET_REFS", "api_key_ref"],
		["path", "pattern", "patient", "oldpwd1x", "cwd", "connection", "compat"],
		["monkey", "turkey", "primary_key", "primaryKey", "sort_keys", "token_budget", "max_tokens", "maxTokens"],
	].flat(),
)("the name %j is not the name of a secret", (name) => {
	expect(isSecretName(name)).toBe(false);
});
