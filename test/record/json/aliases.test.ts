import type { JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { object, record } from "../../support/fixtures.ts";
import { summaryOf, violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();

const withLlm = (llm: JsonObject) => record({ agent: { kind: "Agent", llm } });
const llmOf = (llm: JsonObject) => object(object(format.toJson(format.fromJson(withLlm(llm))).agent).llm);

describe("aliases: names that senders use in place of the specification's", () => {
	test.each([
		["openrouter_site_url", "gateway_site_url", "https://example.test"],
		["openrouter_app_name", "gateway_app_name", "name"],
		["litellm_extra_body", "proxylib_extra_body", { a: [1] }],
	])("the member %s is stored and written as %s", (alias, specified, value) => {
		const llm = llmOf({ [alias]: value });
		expect([llm[specified], alias in llm]).toEqual([value, false]);
	});

	test.each([
		["GraySwanAnalyzer", "VendorRiskAnalyzer", {}],
		["ToolShieldLLMSecurityAnalyzer", "GuardrailLLMSecurityAnalyzer", { llm: { model: "m" } }],
	])("the kind %s is stored and written as %s", (alias, specified, members) => {
		const json = record({ security_analyzer: { kind: alias, ...members } });
		expect(object(format.toJson(format.fromJson(json)).security_analyzer)).toMatchObject({
			kind: specified,
			...members,
		});
	});

	test("an alias beside the specification's name is kept as an unnamed member", () => {
		const both = { gateway_site_url: "own", openrouter_site_url: "other" };
		expect(llmOf(both)).toMatchObject(both);
		const message = format.fromJson(withLlm(both));
		expect(Object.keys(message.unnamedMembers)).toEqual(["/agent/llm/openrouter_site_url"]);
		expect(format.fromMessage(message)).toEqual(message);
	});

	test("an alias is used only when the specification's name is absent, not when it is null", () => {
		const hooks = (hook: JsonObject) => record({ hook_config: { stop: [{ hooks: [hook] }] } });
		const flagOf = (hook: JsonObject) => format.fromJson(hooks(hook)).hookConfig?.stop[0]?.hooks[0]?.runAsync;
		expect(flagOf({ async_: true })).toBe(true);
		expect(summaryOf(violationsOf(() => format.fromJson(hooks({ async: null, async_: true }))))).toEqual([
			"hook_config.stop.0.hooks.0.async bool_type",
		]);
	});

	test.each<[string, JsonObject, string[]]>([
		["alone in its object", { openrouter_site_url: 5 }, ["agent.llm.openrouter_site_url string_type"]],
		[
			"beside the specification's name",
			{ gateway_site_url: "x", openrouter_site_url: 5 },
			["agent.llm.openrouter_site_url string_type"],
		],
	])("an alias with a wrong value is named in the violation, %s", (_, llm, expected) => {
		expect(summaryOf(violationsOf(() => format.fromJson(withLlm(llm))))).toEqual(expected);
	});

	test("an alias in a hook is named in the violation, too", () => {
		for (const hook of [{ async_: "x" }, { async: true, async_: "x" }])
			expect(
				summaryOf(violationsOf(() => format.fromJson(record({ hook_config: { stop: [{ hooks: [hook] }] } })))),
			).toEqual(["hook_config.stop.0.hooks.0.async_ bool_parsing"]);
	});
});
