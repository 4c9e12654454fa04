import { clone, create, ScalarType } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { isSecretName } from "../../../src/record/secrets/secret-names.ts";
import { deriveSecretWalk, REDACTED } from "../../../src/record/secrets/secret-walk.ts";
import { object } from "../../support/fixtures.ts";
import { CONVERSATION_ID, isMarked, pointersTo, recordFields, secretPlaces } from "./secret-places.ts";

const format = new RecordFormat();
const walk = deriveSecretWalk(format.plan);

const base = {
	id: CONVERSATION_ID,
	workspace: { kind: "LocalWorkspace", working_dir: "/w" },
	agent: { kind: "ACPAgent", acp_command: ["acp"] },
};

test("the fields that the proto files mark are these", () => {
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

test("a string field whose name tells of a secret is marked, unless it only names one", () => {
	const telling = recordFields().filter((field) => field.scalar === ScalarType.STRING && isSecretName(field.name));
	const open = telling.filter((field) => !isMarked(field)).map((field) => `${field.parent.name}.${field.name}`);
	expect(open).toEqual(["ACPFileSecretSpec.secret_name"]);
	expect(telling.length).toBeGreaterThan(open.length);
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

test("the walk goes into unions that nest themselves and gives tuples and lists their indexes", () => {
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

test("empty strings, redacted secrets, other values and JSON Schemas are left as they are", () => {
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

test("free-form JSON is replaced and not changed, as the record may share it", () => {
	const state = { token: "t", list: [{ other: 1 }, { cookie: ["c"] }] };
	const record = create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: state });
	walk(record, () => "x");
	expect(state).toEqual({ token: "t", list: [{ other: 1 }, { cookie: ["c"] }] });
	expect(record.agentState).toEqual({ token: "x", list: [{ other: 1 }, { cookie: ["x"] }] });
});

test.each(
	[
		["key", "keys", "api_key", "apiKey", "APIKey", "APIKEYValue", "x-api-key", "key2", "accessKeyId", "SSH_KEY"],
		["token", "tokens", "session.token", "TOKENValue", "idToken"],
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
	].flat(),
)("the name %s tells of a secret", (name) => {
	expect(isSecretName(name)).toBe(true);
});

test.each(["", "keyword", "keyboard_layout", "tokenizer", "tokenized", "model", "name", "pass", "author"])(
	"the name %j tells of no secret",
	(name) => {
		expect(isSecretName(name)).toBe(false);
	},
);
