import type { JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { object, record } from "../../support/fixtures.ts";
import { summaryOf, violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();

const withLlm = (llm: JsonObject) => record({ agent: { kind: "Agent", llm } });
const llmOf = (llm: JsonObject) => object(object(format.toJson(format.fromJson(withLlm(llm))).agent).llm);

describe("the names that senders use for the specification's", () => {
	test.each([
		["openrouter_site_url", "gateway_site_url", "https://example.test"],
		["openrouter_app_name", "gateway_app_name", "name"],
		["litellm_extra_body", "proxylib_extra_body", { a: [1] }],
	])("%s is kept and written as %s", (theirs, ours, value) => {
		const llm = llmOf({ [theirs]: value });
		expect([llm[ours], theirs in llm]).toEqual([value, false]);
	});

	test.each([
		["GraySwanAnalyzer", "VendorRiskAnalyzer", {}],
		["ToolShieldLLMSecurityAnalyzer", "GuardrailLLMSecurityAnalyzer", { llm: { model: "m" } }],
	])("the kind %s is kept and written as %s", (theirs, ours, members) => {
		const json = record({ security_analyzer: { kind: theirs, ...members } });
		expect(object(format.toJson(format.fromJson(json)).security_analyzer)).toMatchObject({ kind: ours, ...members });
	});

	test("give way to the specification's name, and are kept beside it", () => {
		const both = { gateway_site_url: "own", openrouter_site_url: "other" };
		expect(llmOf(both)).toMatchObject(both);
		const message = format.fromJson(withLlm(both));
		expect(Object.keys(message.unnamedMembers)).toEqual(["/agent/llm/openrouter_site_url"]);
		expect(format.fromMessage(message)).toEqual(message);
	});

	test("count when the specification's name is null", () => {
		const hooks = (hook: JsonObject) => record({ hook_config: { stop: [{ hooks: [hook] }] } });
		const flagOf = (hook: JsonObject) => format.fromJson(hooks(hook)).hookConfig?.stop[0]?.hooks[0]?.runAsync;
		expect(flagOf({ async_: true })).toBe(true);
		expect(summaryOf(violationsOf(() => format.fromJson(hooks({ async: null, async_: true }))))).toEqual([
			"hook_config.stop.0.hooks.0.async bool_type",
		]);
	});

	test.each<[string, JsonObject, string[]]>([
		["alone", { openrouter_site_url: 5 }, ["agent.llm.openrouter_site_url string_type"]],
		[
			"beside the specification's name",
			{ gateway_site_url: "x", openrouter_site_url: 5 },
			["agent.llm.openrouter_site_url string_type"],
		],
	])("are named when their value is wrong, %s", (_, llm, expected) => {
		expect(summaryOf(violationsOf(() => format.fromJson(withLlm(llm))))).toEqual(expected);
	});

	test("are named in a hook, too", () => {
		for (const hook of [{ async_: "x" }, { async: true, async_: "x" }])
			expect(
				summaryOf(violationsOf(() => format.fromJson(record({ hook_config: { stop: [{ hooks: [hook] }] } })))),
			).toEqual(["hook_config.stop.0.hooks.0.async_ bool_parsing"]);
	});
});
