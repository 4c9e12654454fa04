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

describe("required members", () => {
	test("are all reported when they are missing", () => {
		expect(refused({})).toEqual(["id missing", "workspace missing", "agent missing"]);
		expect(refused(record({ agent: { kind: "ACPAgent" } }))).toEqual(["agent.acp_command missing"]);
	});

	test("may not be null", () => {
		expect(refused(record({ id: null, workspace: null, agent: null }))).toEqual([
			"id uuid_type",
			"workspace model_attributes_type",
			"agent model_attributes_type",
		]);
	});

	test.each([[[]], ["text"], [1], [true], [null]])("the body %j is refused, because it is not an object", (json) => {
		expect(refused(json)).toEqual(["model_attributes_type"]);
	});
});

describe("null and absent members", () => {
	test("a nullable member is unset by null, and gets its default when absent", () => {
		expect(format.fromJson(record({ persistence_dir: null })).persistenceDir).toBeUndefined();
		expect(format.fromJson(record()).persistenceDir).toBe("workspace/conversations");
		expect(format.toJson(format.fromJson(record({ persistence_dir: null }))).persistence_dir).toBeNull();
	});

	test("an unset nullable field of a message stays unset", () => {
		const message = format.fromJson(record({ persistence_dir: null }));
		expect(format.fromMessage(message).persistenceDir).toBeUndefined();
	});

	test("null is refused in members that are not nullable", () => {
		const nulls = {
			max_iterations: null,
			stuck_detection: null,
			execution_status: null,
			stats: null,
			created_at: null,
		};
		expect(refused(record(nulls))).toEqual([
			"max_iterations int_type",
			"stuck_detection bool_type",
			"execution_status enum",
			"stats model_attributes_type",
			"created_at datetime_type",
		]);
	});
});

describe("types", () => {
	test("a value of another type is refused and not converted", () => {
		const json = acp({ acp_prompt_timeout: "1800", acp_isolate_data_dir: 1, acp_args: "x", acp_model: 5 });
		expect(
			refused({
				...json,
				max_iterations: "500",
				stuck_detection: "true",
				created_at: 1795251304,
				blocked_actions: [],
				agent_state: [],
				sub_conversation_ids: [1, "x"],
			}).sort(),
		).toEqual([
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
		]);
	});

	test.each([
		["x", "bool_parsing"],
		[2, "bool_parsing"],
		[2 ** 60, "bool_parsing"],
		[1.5, "bool_type"],
		[[], "bool_type"],
		[null, "bool_type"],
	])("%j in place of a boolean is refused with %s", (json, type) => {
		expect(refused(record({ stuck_detection: json }))).toEqual([`stuck_detection ${type}`]);
	});

	test("an integer in place of a boolean has another violation from 2^63 on", () => {
		const typesOf = (integer: bigint) => {
			const body = JSON.stringify(record({ stuck_detection: 7 })).replace(":7", `:${integer}`);
			return summaryOf(violationsOf(() => format.parse(Buffer.from(body))));
		};
		expect(typesOf(2n ** 63n - 1n)).toEqual(["stuck_detection bool_parsing"]);
		expect(typesOf(2n ** 63n)).toEqual(["stuck_detection bool_type"]);
	});

	test("a tuple has exactly three strings", () => {
		const analyzer = {
			kind: "PatternSecurityAnalyzer",
			high_patterns: [["a"], ["a", "b", "c", "d"], "abc", [1, "b", "c"], [null, "b"]],
		};
		expect(refused(record({ security_analyzer: analyzer }))).toEqual([
			"security_analyzer.high_patterns.0.1 missing",
			"security_analyzer.high_patterns.0.2 missing",
			"security_analyzer.high_patterns.1 too_long",
			"security_analyzer.high_patterns.2 tuple_type",
			"security_analyzer.high_patterns.3.0 string_type",
			"security_analyzer.high_patterns.4.0 string_type",
			"security_analyzer.high_patterns.4.2 missing",
		]);
	});
});

describe("unions and free-form members", () => {
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

	test("a secret source of an unknown kind is refused", () => {
		const secret_registry = { secret_sources: { TOKEN: { kind: "VaultSecret" } } };
		expect(refused(record({ secret_registry }))).toEqual(["secret_registry.secret_sources.TOKEN value_error"]);
	});

	test("an open union keeps an object of an unknown kind unchanged", () => {
		const condenser = { kind: "MyCondenser", levels: [1, { a: null }] };
		const critic = { kind: "MyCritic", mode: 7 };
		const agent = object(format.toJson(format.fromJson(acp({ condenser, critic }))).agent);
		expect([agent.condenser, agent.critic]).toEqual([condenser, critic]);
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

	test.each([[[]], [{}], [true], [["5"]]])("a timeout of an MCP server may not be %j", (json) => {
		const limits = { timeout: json, sse_read_timeout: json };
		expect(refused(acp({ mcp_config: { s: limits } }))).toEqual([
			"agent.mcp_config.s.timeout float_type",
			"agent.mcp_config.s.sse_read_timeout float_type",
		]);
	});

	test.each([0, 1.5, -1, "5", ""])("a timeout of an MCP server may be %j", (timeout) => {
		const message = format.fromJson(acp({ mcp_config: { s: { timeout, sse_read_timeout: null } } }));
		expect(format.toJson(message).agent).toMatchObject({ mcp_config: { s: { timeout } } });
		expect(format.fromMessage(message)).toEqual(message);
	});

	test("a capability override of a model may be any JSON", () => {
		const capability_overrides = { a: true, b: "text", c: 1.5, d: null, e: [1, { f: null }], g: {} };
		const message = format.fromJson(acp({ llm: { model: "m", capability_overrides } }));
		expect(object(object(format.toJson(message).agent).llm).capability_overrides).toEqual(capability_overrides);
		expect(format.fromMessage(message)).toEqual(message);
	});

	test("an ensemble has at least one analyzer, and ensembles in it are validated likewise", () => {
		const ensemble = (...analyzers: JsonValue[]) => ({ kind: "EnsembleSecurityAnalyzer", analyzers });
		expect(refused(record({ security_analyzer: ensemble() }))).toEqual(["security_analyzer.analyzers too_short"]);
		for (const analyzers of ["", { length: 0 }])
			expect(refused(record({ security_analyzer: { kind: "EnsembleSecurityAnalyzer", analyzers } }))).toEqual([
				"security_analyzer.analyzers list_type",
			]);
		expect(refused(record({ security_analyzer: ensemble(ensemble(), { kind: "X" }) }))).toEqual([
			"security_analyzer.analyzers.0.analyzers too_short",
			"security_analyzer.analyzers.1 value_error",
		]);
	});
});

describe("ranges of numbers", () => {
	test.each([
		[{ max_iterations: 0 }, "max_iterations greater_than"],
		[
			{ launched_agent_profile: { agent_profile_id: "0".repeat(32), revision: -1 } },
			"launched_agent_profile.revision greater_than_equal",
		],
		[{ metrics: { accumulated_cost: -0.5 } }, "metrics.accumulated_cost greater_than_equal"],
		[
			{ metrics: { accumulated_token_usage: { prompt_tokens: -1 } } },
			"metrics.accumulated_token_usage.prompt_tokens greater_than_equal",
		],
		[
			{ stats: { usage_to_metrics: { a: { accumulated_cost: -1 } } } },
			"stats.usage_to_metrics.a.accumulated_cost greater_than_equal",
		],
	])("%j is refused", (members, expected) => {
		expect(refused(record(members))).toEqual([expected]);
	});

	test("a tool concurrency limit is at least 1", () => {
		expect(refused(acp({ tool_concurrency_limit: 0 }))).toEqual(["agent.tool_concurrency_limit greater_than_equal"]);
		const agent = format.fromJson(acp({ tool_concurrency_limit: 1 })).agent?.kind.value;
		expect(agent).toMatchObject({ toolConcurrencyLimit: 1n });
	});
});

describe("tags", () => {
	test.each(["a", "0", "a1b2", "z".repeat(1000)])("may have the key %s", (key) => {
		expect(format.fromJson(record({ tags: { [key]: "v" } })).tags).toEqual({ [key]: "v" });
	});

	test.each(["", "A", "a-b", "a_b", "a b", "é", "a\n"])("may not have the key %j", (key) => {
		expect(refused(record({ tags: { [key]: "v" } }))).toEqual(["tags value_error"]);
	});

	test("may have values of up to 256 characters, however many bytes each character has", () => {
		for (const character of ["x", "é", "🗝"])
			expect(format.fromJson(record({ tags: { a: character.repeat(256) } })).tags.a).toBe(character.repeat(256));
		expect(refused(record({ tags: { a: "x".repeat(257), b: "🗝".repeat(257), c: 1 } }))).toEqual([
			"tags value_error",
			"tags value_error",
			"tags.c string_type",
		]);
	});
});

describe("a hook configuration", () => {
	test("is closed: it may have no unnamed members", () => {
		const hook_config = { stop: [], PreToolUse: [], more: 1 };
		expect(refused(record({ hook_config }))).toEqual([
			"hook_config.PreToolUse extra_forbidden",
			"hook_config.more extra_forbidden",
		]);
	});

	test("may have unnamed members in its matchers and hooks", () => {
		const hook_config = { stop: [{ matcher: "*", hooks: [{ command: "true", news: 1 }], news: 2 }] };
		expect(format.toJson(format.fromJson(record({ hook_config }))).hook_config).toMatchObject(hook_config);
	});
});

describe("an inline system prompt", () => {
	test.each(["ACPAgent", "Agent"])("excludes a file name other than the default (%s)", (kind) => {
		const agent = { kind, acp_command: [], system_prompt: "p", system_prompt_filename: "own.j2" };
		expect(refused(record({ agent }))).toEqual(["agent value_error"]);
	});

	test.each([
		{ system_prompt: "p" },
		{ system_prompt: "p", system_prompt_filename: "system_prompt.j2" },
		{ system_prompt: null, system_prompt_filename: "own.j2" },
		{ system_prompt_filename: "own.j2" },
	])("and a file name are accepted if either is unset or the default: %j", (members) => {
		expect(object(format.toJson(format.fromJson(acp(members))).agent)).toMatchObject(members);
	});

	test("excludes a file name over gRPC as well", () => {
		const message = format.fromJson(acp({ system_prompt: "p" }));
		if (message.agent?.kind.case !== "acpAgent") throw new Error("not an ACP agent");
		message.agent.kind.value.systemPromptFilename = "own.j2";
		expect(summaryOf(violationsOf(() => format.fromMessage(message)))).toEqual(["agent value_error"]);
	});
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

test("a map entry named __proto__ is validated like any other", () => {
	const json = JSON.parse('{"__proto__": 1, "a": 2}');
	expect(refused(record({ blocked_actions: json }))).toEqual([
		"blocked_actions.__proto__ string_type",
		"blocked_actions.a string_type",
	]);
	const usages = JSON.parse('{"__proto__": {"model_name": 1, "token_usages": [{"prompt_tokens": -1}]}}');
	expect(refused(record({ stats: { usage_to_metrics: usages } }))).toEqual([
		"stats.usage_to_metrics.__proto__.model_name string_type",
		"stats.usage_to_metrics.__proto__.token_usages.0.prompt_tokens greater_than_equal",
	]);
	expect(format.fromJson(record({ blocked_actions: JSON.parse('{"__proto__":"r"}') })).blockedActions).toEqual(
		JSON.parse('{"__proto__":"r"}'),
	);
	expect(refused(record({ tags: JSON.parse('{"__proto__":"r","a":"b"}') }))).toEqual(["tags value_error"]);
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

	test("are refused for values that have no JSON form", () => {
		const message = format.fromJson(record());
		message.executionStatus = Number("99");
		message.workspace = { $typeName: "conversations.v1.Workspace", kind: { case: undefined } };
		expect(summaryOf(violationsOf(() => format.fromMessage(message)))).toEqual([
			"workspace value_error",
			"execution_status enum",
		]);
	});
});
