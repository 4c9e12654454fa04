import { fromBinary, type JsonObject, type JsonValue, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { stringifyExactJson } from "../../../src/record/json/exact-json.ts";
import { toValue } from "../../../src/record/json/json-form.ts";
import { MAX_VALUES } from "../../../src/record/json/json-value.ts";
import { MAX_UNNAMED_MEMBERS, RecordFormat } from "../../../src/record/record-format.ts";
import { MAX_VIOLATIONS } from "../../../src/record/validation/schema.ts";
import { record } from "../../support/fixtures.ts";
import { summaryOf, violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();

/** Returns a value inside `levels` arrays. */
function nested(levels: number, inside: JsonValue): JsonValue {
	let json = inside;
	for (let level = 0; level < levels; level++) json = [json];
	return json;
}

function refused(json: JsonValue): string[] {
	return summaryOf(violationsOf(() => format.fromJson(json)));
}

describe("nesting of free-form JSON", () => {
	test("of 32 levels is accepted and written back", () => {
		// The object agent_state is itself a level.
		const state = { deep: nested(31, "bottom") };
		expect(format.toJson(format.fromJson(record({ agent_state: state }))).agent_state).toEqual(state);
		const member = nested(32, "bottom");
		expect(format.toJson(format.fromJson(record({ news: member }))).news).toEqual(member);
	});

	test("of 33 levels is refused, in a field and in an unnamed member", () => {
		expect(refused(record({ agent_state: { deep: nested(32, "bottom") } }))).toEqual(["agent_state value_error"]);
		expect(refused(record({ news: nested(33, "bottom") }))).toEqual(["news value_error"]);
	});

	test("is reported at the nested value itself, also inside messages", () => {
		const tool = { name: "t", params: { deep: nested(32, 1) } };
		const agent = { kind: "ACPAgent", acp_command: [], tools: [{ name: "ok" }, tool], extra: nested(33, 1) };
		expect(refused(record({ agent }))).toEqual(["agent.tools.1.params value_error", "agent.extra value_error"]);
	});

	test("of any greater depth is refused without overflowing the stack", () => {
		for (const levels of [48, 100_000])
			expect(refused(record({ agent_state: { deep: nested(levels, 1) } }))).toEqual(["value_error"]);
		expect(refused(nested(100_000, 1))).toEqual(["value_error"]);
	});
});

describe("nesting of unions in themselves", () => {
	const ensemble = (levels: number): JsonValue =>
		levels === 0
			? { kind: "LLMSecurityAnalyzer" }
			: { kind: "EnsembleSecurityAnalyzer", analyzers: [ensemble(levels - 1)] };

	test("is accepted as deep as protobuf readers can decode", () => {
		const deepest = record({ security_analyzer: ensemble(23) });
		const message = format.fromJson(deepest);
		expect(toBinary(ConversationInfoSchema, message).length).toBeGreaterThan(0);
		expect(format.fromMessage(message)).toEqual(message);
		expect(refused(record({ security_analyzer: ensemble(24) }))).toEqual(["value_error"]);
	});

	test("that is too deep is refused in a message as in JSON", () => {
		const message = format.fromJson(record({ security_analyzer: ensemble(23) }));
		const root = message.securityAnalyzer;
		if (root === undefined) throw new Error("there is no analyzer");
		message.securityAnalyzer = {
			...root,
			kind: {
				case: "ensembleSecurityAnalyzer",
				value: {
					$typeName: "conversations.v1.EnsembleSecurityAnalyzer",
					analyzers: [root],
					propagateUnknown: false,
				},
			},
		};
		expect(summaryOf(violationsOf(() => format.fromMessage(message)))).toEqual(["value_error"]);
	});
});

describe("text that is not valid Unicode", () => {
	test("a lone surrogate is refused in values and names, and is not in the violations", () => {
		const lone = JSON.parse('"\\ud83d"');
		const violations = violationsOf(() =>
			format.fromJson(
				record({
					title: lone,
					agent_state: { inner: [lone] },
					tags: { a: `x${lone}` },
					blocked_actions: { [lone]: "reason" },
					[`new${lone}`]: 1,
				}),
			),
		);
		expect(summaryOf(violations).sort()).toEqual([
			"agent_state.inner.0 string_unicode",
			"blocked_actions.\ufffd string_unicode",
			"new\ufffd string_unicode",
			"tags.a string_unicode",
			"title string_unicode",
		]);
		expect(JSON.stringify(violations.map(({ path, message }) => ({ path, message })))).not.toContain("\\ud83d");
	});

	test("pairs of surrogates are valid", () => {
		const title = "🗝 𝒳";
		expect(format.toJson(format.fromJson(record({ title }))).title).toBe(title);
	});
});

describe("numbers", () => {
	test("beyond the range of a double are refused everywhere", () => {
		const agent = { kind: "ACPAgent", acp_command: [], acp_prompt_timeout: Infinity };
		const json = record({ agent_state: { a: { b: [Infinity] } }, news: -Infinity, max_iterations: Infinity, agent });
		expect(refused(json).sort()).toEqual([
			"agent.acp_prompt_timeout finite_number",
			"agent_state.a.b.0 finite_number",
			"max_iterations finite_number",
			"news finite_number",
		]);
		const violations = violationsOf(() => format.fromJson(json));
		expect(violations.map((violation) => "input" in violation)).toEqual([false, false, false, false]);
	});

	test.each([1n, 500n, 2n ** 53n + 1n, 2n ** 63n - 1n])(
		"the integer %d is kept exactly in JSON and protobuf",
		(value) => {
			const body = Buffer.from(stringifyExactJson({ ...record(), max_iterations: value }));
			const parsed = format.parse(body);
			expect(parsed.maxIterations).toBe(value);
			const stored = fromBinary(ConversationInfoSchema, toBinary(ConversationInfoSchema, parsed));
			expect(format.fromMessage(stored).maxIterations).toBe(value);
			expect(stringifyExactJson(format.toJson(stored))).toContain(`"max_iterations":${value}`);
		},
	);

	test.each(["9223372036854775808", "-9223372036854775809", "1e19", "123456789012345678901234567890"])(
		"the integer %s is refused with its exact value in the violation",
		(text) => {
			const body = Buffer.from(JSON.stringify(record()).replace("{", `{"max_iterations":${text},`));
			expect(violationsOf(() => format.parse(body))).toEqual([
				{
					path: ["max_iterations"],
					type: "int_parsing_size",
					message: "Unable to parse input as an integer, exceeded maximum size of 64 bits signed",
					input: text === "1e19" ? 10n ** 19n : BigInt(text),
				},
			]);
		},
	);

	test("a large integer becomes a double in a double field and in free-form JSON", () => {
		const body = Buffer.from(
			stringifyExactJson({
				...record({ agent: { kind: "ACPAgent", acp_command: [] } }),
				agent_state: { a: [9007199254740993n] },
				news: 9007199254740993n,
				metrics: { accumulated_cost: 9007199254740993n },
			}),
		);
		const message = format.parse(body);
		expect(message.agentState).toEqual({ a: [9007199254740992] });
		expect(message.unnamedMembers["/news"]).toEqual(toValue(9007199254740992));
		expect(message.metrics?.accumulatedCost).toBe(9007199254740992);
		const negative = { ...record(), metrics: { accumulated_cost: -9007199254740993n } };
		expect(summaryOf(violationsOf(() => format.fromJson(negative)))).toEqual([
			"metrics.accumulated_cost greater_than_equal",
		]);
	});
});

describe("a record has a maximum", () => {
	test("of elements and members", () => {
		const skills = (count: number) => record({ invoked_skills: Array(count).fill("s") });
		expect(format.fromJson(skills(100_000)).invokedSkills).toHaveLength(100_000);
		expect(refused(skills(MAX_VALUES))).toEqual(["value_error"]);
		const message = format.fromJson(record());
		message.invokedSkills = Array(MAX_VALUES).fill("s");
		expect(summaryOf(violationsOf(() => format.fromMessage(message)))).toEqual(["value_error"]);
	});

	test("of unnamed members", () => {
		const news = (count: number) => record(Object.fromEntries(Array.from({ length: count }, (_, i) => [`n${i}`, 1])));
		const message = format.fromJson(news(MAX_UNNAMED_MEMBERS));
		expect(Object.keys(message.unnamedMembers)).toHaveLength(MAX_UNNAMED_MEMBERS);
		expect(format.fromMessage(message)).toEqual(message);
		const tooMany = {
			path: [],
			type: "value_error",
			message: "Value error, more than 10000 members that the schema does not name",
			context: { error: {} },
		};
		expect(violationsOf(() => format.fromJson(news(MAX_UNNAMED_MEMBERS + 1)))).toEqual([tooMany]);
		message.unnamedMembers["/more"] = toValue(1);
		expect(violationsOf(() => format.fromMessage(message))).toEqual([tooMany]);
	});

	test.each<[string, JsonObject, string]>([
		["items", { invoked_skills: Array(150_000).fill(1) }, "string_type"],
		[
			"entries",
			{ blocked_actions: Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [i, 1])) },
			"string_type",
		],
		["keys", { tags: Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`N${i}`, "v"])) }, "value_error"],
		[
			"names",
			{ hook_config: Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`n${i}`, 1])) },
			"extra_forbidden",
		],
		["messages", { client_tools: Array(50_000).fill({}) }, "missing"],
	])("of reported violations: wrong %s", (_, members, type) => {
		const violations = violationsOf(() => format.fromJson(record(members)));
		expect(violations).toHaveLength(MAX_VIOLATIONS);
		expect(new Set(violations.map((violation) => violation.type))).toEqual(new Set([type]));
	});
});
