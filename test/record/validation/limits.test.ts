import { type JsonValue, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { record } from "../../support/fixtures.ts";
import { summaryOf, violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();

/** A value inside `levels` arrays. */
function nested(levels: number, inside: JsonValue): JsonValue {
	let json = inside;
	for (let level = 0; level < levels; level++) json = [json];
	return json;
}

function refused(json: JsonValue): string[] {
	return summaryOf(violationsOf(() => format.fromJson(json)));
}

describe("nesting of free-form JSON", () => {
	test("32 levels are taken and come back", () => {
		// The object agent_state is a level itself.
		const state = { deep: nested(31, "bottom") };
		expect(format.toJson(format.fromJson(record({ agent_state: state }))).agent_state).toEqual(state);
		const member = nested(32, "bottom");
		expect(format.toJson(format.fromJson(record({ news: member }))).news).toEqual(member);
	});

	test("33 levels are refused, in a field and below a member that no field names", () => {
		expect(refused(record({ agent_state: { deep: nested(32, "bottom") } }))).toEqual(["agent_state value_error"]);
		expect(refused(record({ news: nested(33, "bottom") }))).toEqual(["news value_error"]);
	});

	test("the place is the value's own, however deep it stands", () => {
		const tool = { name: "t", params: { deep: nested(32, 1) } };
		const agent = { kind: "ACPAgent", acp_command: [], tools: [{ name: "ok" }, tool], extra: nested(33, 1) };
		expect(refused(record({ agent }))).toEqual(["agent.tools.1.params value_error", "agent.extra value_error"]);
	});

	test("a record of any depth is refused, and does not overflow the stack", () => {
		for (const levels of [48, 100_000])
			expect(refused(record({ agent_state: { deep: nested(levels, 1) } }))).toEqual(["value_error"]);
		expect(refused(nested(100_000, 1))).toEqual(["value_error"]);
	});
});

describe("nesting of unions", () => {
	const ensemble = (levels: number): JsonValue =>
		levels === 0
			? { kind: "LLMSecurityAnalyzer" }
			: { kind: "EnsembleSecurityAnalyzer", analyzers: [ensemble(levels - 1)] };

	test("ensembles of ensembles are taken as deep as protobuf readers can follow", () => {
		const deepest = record({ security_analyzer: ensemble(23) });
		const message = format.fromJson(deepest);
		expect(toBinary(ConversationInfoSchema, message).length).toBeGreaterThan(0);
		expect(format.fromMessage(message)).toEqual(message);
		expect(refused(record({ security_analyzer: ensemble(24) }))).toEqual(["value_error"]);
	});

	test("a deep message is refused like its JSON form", () => {
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

describe("text that is no Unicode", () => {
	test("a lone surrogate is refused in values and names, and not echoed", () => {
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

	test("pairs of surrogates are text", () => {
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
	});

	test.each([1, 500, 2 ** 53 - 1])("the integer %d is kept exactly", (value) => {
		expect(format.fromJson(record({ max_iterations: value })).maxIterations).toBe(BigInt(value));
	});

	test.each([2 ** 53, 2 ** 64, 1e300])("the integer %d is refused", (value) => {
		expect(refused(record({ max_iterations: value }))).toEqual(["max_iterations int_parsing_size"]);
	});

	test("an integer may be written with a zero fraction or an exponent", () => {
		expect(format.fromJson(record({ max_iterations: JSON.parse("500.0") })).maxIterations).toBe(500n);
		expect(format.fromJson(record({ max_iterations: JSON.parse("1e3") })).maxIterations).toBe(1000n);
	});

	test("a message's integer beyond 2^53 is refused like the JSON one", () => {
		const message = format.fromJson(record());
		message.maxIterations = 2n ** 53n;
		expect(summaryOf(violationsOf(() => format.fromMessage(message)))).toEqual(["max_iterations int_parsing_size"]);
	});
});
