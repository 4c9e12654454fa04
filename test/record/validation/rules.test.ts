import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { object, record } from "../../support/fixtures.ts";
import { summaryOf, violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();

function refused(json: JsonValue): string[] {
	return summaryOf(violationsOf(() => format.fromJson(json)));
}

function acp(members: JsonObject): JsonObject {
	return record({ agent: { kind: "ACPAgent", acp_command: ["acp"], ...members } });
}

const ensemble = (...analyzers: JsonValue[]) => ({ kind: "EnsembleSecurityAnalyzer", analyzers });
const analyzed = (security_analyzer: JsonObject) => record({ security_analyzer });
const usages = (text: string) => record({ stats: { usage_to_metrics: JSON.parse(text) } });

test.each<[string, JsonValue, readonly string[]]>([
	["no members", {}, ["id missing", "workspace missing", "agent missing"]],
	["no command", record({ agent: { kind: "ACPAgent" } }), ["agent.acp_command missing"]],
	[
		"null for a required member",
		record({ id: null, workspace: null, agent: null }),
		["id uuid_type", "workspace model_attributes_type", "agent model_attributes_type"],
	],
	...[[], "text", 1, true, null].map((body): [string, JsonValue, string[]] => [
		`the form ${JSON.stringify(body)}`,
		body,
		["model_attributes_type"],
	]),
	[
		"null for a member that is not nullable",
		record({ max_iterations: null, stuck_detection: null, execution_status: null, stats: null, created_at: null }),
		[
			"max_iterations int_type",
			"stuck_detection bool_type",
			"execution_status enum",
			"stats model_attributes_type",
			"created_at datetime_type",
		],
	],
	[
		"values of other types",
		{
			...acp({ acp_prompt_timeout: "1800", acp_isolate_data_dir: 1, acp_args: "x", acp_model: 5 }),
			...{ max_iterations: "500", stuck_detection: "true", created_at: 1795251304 },
			...{ blocked_actions: [], agent_state: [], sub_conversation_ids: [1, "x"] },
		},
		[
			"agent.acp_args list_type",
			"agent.acp_isolate_data_dir bool_parsing",
			"agent.acp_model string_type",
			"agent.acp_prompt_timeout float_parsing",
			"agent_state dict_type",
			"blocked_actions dict_type",
			"created_at datetime_type",
			"max_iterations int_parsing",
			"stuck_detection bool_parsing",
			"sub_conversation_ids.0 uuid_type",
			"sub_conversation_ids.1 uuid_parsing",
		],
	],
	...["x", 2, 2 ** 60, 1.5, [], null].map((json, n): [string, JsonValue, string[]] => [
		`${JSON.stringify(json)} for a boolean`,
		record({ stuck_detection: json }),
		[`stuck_detection ${n < 3 ? "bool_parsing" : "bool_type"}`],
	]),
	[
		"tuples that are not three strings",
		analyzed({
			kind: "PatternSecurityAnalyzer",
			high_patterns: [["a"], ["a", "b", "c", "d"], "abc", [1, "b", "c"], [null, "b"]],
		}),
		[
			"security_analyzer.high_patterns.0.1 missing",
			"security_analyzer.high_patterns.0.2 missing",
			"security_analyzer.high_patterns.1 too_long",
			"security_analyzer.high_patterns.2 tuple_type",
			"security_analyzer.high_patterns.3.0 string_type",
			"security_analyzer.high_patterns.4.0 string_type",
			"security_analyzer.high_patterns.4.2 missing",
		],
	],
	[
		"a secret source of an unknown kind",
		record({ secret_registry: { secret_sources: { TOKEN: { kind: "VaultSecret" } } } }),
		["secret_registry.secret_sources.TOKEN value_error"],
	],
	...[[], {}, true, ["5"]].map((timeout): [string, JsonValue, string[]] => [
		`${JSON.stringify(timeout)} for a timeout of an MCP server`,
		acp({ mcp_config: { s: { timeout, sse_read_timeout: timeout } } }),
		["agent.mcp_config.s.timeout float_type", "agent.mcp_config.s.sse_read_timeout float_type"],
	]),
	["an ensemble without analyzers", analyzed(ensemble()), ["security_analyzer.analyzers too_short"]],
	...["", { length: 0 }].map((analyzers): [string, JsonValue, string[]] => [
		`${JSON.stringify(analyzers)} for a list`,
		analyzed({ kind: "EnsembleSecurityAnalyzer", analyzers }),
		["security_analyzer.analyzers list_type"],
	]),
	[
		"ensembles in an ensemble",
		analyzed(ensemble(ensemble(), { kind: "X" })),
		["security_analyzer.analyzers.0.analyzers too_short", "security_analyzer.analyzers.1 value_error"],
	],
	["no iterations", record({ max_iterations: 0 }), ["max_iterations greater_than"]],
	[
		"a negative revision",
		record({ launched_agent_profile: { agent_profile_id: "0".repeat(32), revision: -1 } }),
		["launched_agent_profile.revision greater_than_equal"],
	],
	[
		"negative costs and counts",
		record({
			metrics: { accumulated_cost: -0.5, accumulated_token_usage: { prompt_tokens: -1 } },
			stats: { usage_to_metrics: { a: { accumulated_cost: -1 } } },
		}),
		[
			"metrics.accumulated_cost greater_than_equal",
			"metrics.accumulated_token_usage.prompt_tokens greater_than_equal",
			"stats.usage_to_metrics.a.accumulated_cost greater_than_equal",
		],
	],
	["no concurrent tools", acp({ tool_concurrency_limit: 0 }), ["agent.tool_concurrency_limit greater_than_equal"]],
	...["", "A", "a-b", "a_b", "a b", "é", "a\n"].map((key): [string, JsonValue, string[]] => [
		`the tag ${JSON.stringify(key)}`,
		record({ tags: { [key]: "v" } }),
		["tags value_error"],
	]),
	[
		"tags with long values and a number",
		record({ tags: { a: "x".repeat(257), b: "🗝".repeat(257), c: 1 } }),
		["tags value_error", "tags value_error", "tags.c string_type"],
	],
	[
		"unnamed members of a closed object",
		record({ hook_config: { stop: [], PreToolUse: [], more: 1 } }),
		["hook_config.PreToolUse extra_forbidden", "hook_config.more extra_forbidden"],
	],
	...["ACPAgent", "Agent"].map((kind): [string, JsonValue, string[]] => [
		`a prompt and the name of its file (${kind})`,
		record({ agent: { kind, acp_command: [], system_prompt: "p", system_prompt_filename: "own.j2" } }),
		["agent value_error"],
	]),
	// A map entry named __proto__ is validated like any other.
	[
		"an entry of a map named __proto__",
		record({ blocked_actions: JSON.parse('{"__proto__": 1, "a": 2}') }),
		["blocked_actions.__proto__ string_type", "blocked_actions.a string_type"],
	],
	[
		"a message in a map named __proto__",
		usages('{"__proto__": {"model_name": 1, "token_usages": [{"prompt_tokens": -1}]}}'),
		[
			"stats.usage_to_metrics.__proto__.model_name string_type",
			"stats.usage_to_metrics.__proto__.token_usages.0.prompt_tokens greater_than_equal",
		],
	],
	["a tag named __proto__", record({ tags: JSON.parse('{"__proto__":"r","a":"b"}') }), ["tags value_error"]],
])("a record is refused with %s", (_, json, expected) => {
	expect(refused(json).sort()).toEqual(expected.toSorted());
});

test.each<[string, JsonObject]>([
	...[0, 1.5, -1, "5", ""].map((timeout): [string, JsonObject] => [
		`the timeout ${JSON.stringify(timeout)} of an MCP server`,
		{ agent: { mcp_config: { s: { timeout } } } },
	]),
	[
		"objects of unknown kinds in open unions",
		{ agent: { condenser: { kind: "MyCondenser", levels: [1, { a: null }] }, critic: { kind: "MyCritic", mode: 7 } } },
	],
	[
		"any JSON as a capability override of a model",
		{
			agent: {
				llm: { model: "m", capability_overrides: { a: true, b: "text", c: 1.5, d: null, e: [1, { f: null }], g: {} } },
			},
		},
	],
	["one tool at a time", { agent: { tool_concurrency_limit: 1 } }],
	["a prompt", { agent: { system_prompt: "p" } }],
	["a prompt and the default file", { agent: { system_prompt: "p", system_prompt_filename: "system_prompt.j2" } }],
	["no prompt and a file", { agent: { system_prompt: null, system_prompt_filename: "own.j2" } }],
	["a file", { agent: { system_prompt_filename: "own.j2" } }],
	["an entry of a map named __proto__", { blocked_actions: JSON.parse('{"__proto__":"r"}') }],
	["tags of letters and digits", { tags: { a: "v", 0: "v", a1b2: "v", ["z".repeat(1000)]: "v" } }],
	// Whatever number of bytes each character has.
	["tags of 256 characters", { tags: { a: "x".repeat(256), b: "é".repeat(256), c: "🗝".repeat(256) } }],
])("a record is accepted with %s", (_, { agent = {}, ...members }) => {
	const own = object(agent);
	const message = format.fromJson({ ...acp(own), ...members });
	expect(format.toJson(message)).toMatchObject({ ...members, agent: own });
	expect(format.fromMessage(message)).toEqual(message);
});

test("an integer in place of a boolean has another violation from 2^63 on", () => {
	const typesOf = (integer: bigint) => {
		const body = JSON.stringify(record({ stuck_detection: 7 })).replace(":7", `:${integer}`);
		return summaryOf(violationsOf(() => format.parse(Buffer.from(body))));
	};
	expect(typesOf(2n ** 63n - 1n)).toEqual(["stuck_detection bool_parsing"]);
	expect(typesOf(2n ** 63n)).toEqual(["stuck_detection bool_type"]);
});

test.each([
	["workspace", { kind: "CloudWorkspace" }, "unknown kind 'CloudWorkspace'"],
	["workspace", { working_dir: "/" }, "kind is missing"],
	["agent", { kind: "acpagent", acp_command: [] }, "unknown kind 'acpagent'"],
	["agent", { kind: ["ACPAgent"] }, "unknown kind"],
	["agent", { kind: "constructor" }, "unknown kind 'constructor'"],
	["confirmation_policy", { kind: "Sometimes" }, "unknown kind 'Sometimes'"],
	["confirmation_policy", {}, "kind is missing"],
	["security_analyzer", { kind: "x".repeat(65) }, "unknown kind"],
])("a closed union refuses an unknown kind: %s %j", (member, json, problem) => {
	const violations = violationsOf(() => format.fromJson(record({ [member]: json })));
	expect(summaryOf(violations)).toEqual([`${member} value_error`]);
	expect(violations.map(({ message }) => message.split(";")[0])).toEqual([`Value error, ${problem}`]);
});

test.each<[JsonObject]>(
	[7, true, [], "x", [{}]].flatMap((json) => [
		[{ condenser: json }],
		[{ critic: json }],
		...(json === "x" ? [] : [[{ mcp_config: { s: { auth: json } } }] as [JsonObject]]),
		...(Array.isArray(json)
			? []
			: [[{ agent_context: { skills: [{ name: "n", content: "c", trigger: json }] } }] as [JsonObject]]),
	]),
)("an open union refuses a value that is not an object: %j", (members) => {
	const violations = violationsOf(() => format.fromJson(acp(members)));
	expect(violations.map(({ type }) => type)).toEqual(["model_attributes_type"]);
	expect(violations[0]?.path.at(-1)).toMatch(/^(?:condenser|critic|auth|trigger)$/);
});

test("the error for an invalid record has the conversation's id, if that is valid", () => {
	for (const [id, expected] of [
		["{2A940CAC-6AC3-409B-BFB1-F7C2C97455DB}", "2a940cac-6ac3-409b-bfb1-f7c2c97455db"],
		["no id", undefined],
	] as const)
		expect(() => format.fromJson(record({ id, title: 7 }))).toThrow(
			expect.objectContaining({ kind: "invalid_record", conversationId: expected }),
		);
});

describe("records that arrive as messages", () => {
	test("get the defaults of unset fields that are not nullable", () => {
		const message = format.fromJson(record());
		delete message.maxIterations;
		delete message.confirmationPolicy;
		delete message.executionStatus;
		expect(format.fromMessage(message)).toEqual(format.fromJson({ ...format.toJson(message), id: message.id ?? "" }));
		expect(format.fromMessage(message).maxIterations).toBe(500n);
	});

	test("are refused for values that have no JSON form, and for members that exclude each other", () => {
		const message = format.fromJson(record());
		message.executionStatus = Number("99");
		message.workspace = { $typeName: "conversations.v1.Workspace", kind: { case: undefined } };
		expect(summaryOf(violationsOf(() => format.fromMessage(message)))).toEqual([
			"workspace value_error",
			"execution_status enum",
		]);
		const prompted = format.fromJson(acp({ system_prompt: "p" }));
		if (prompted.agent?.kind.case !== "acpAgent") throw new Error("not an ACP agent");
		prompted.agent.kind.value.systemPromptFilename = "own.j2";
		expect(summaryOf(violationsOf(() => format.fromMessage(prompted)))).toEqual(["agent value_error"]);
	});
});
