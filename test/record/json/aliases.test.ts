import { describe, expect, test } from "vitest";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { object, record } from "../../support/fixtures.ts";
import { summaryOf, violationsOf } from "../../support/refusal.ts";

const plain = new RecordFormat();
const format = new RecordFormat(
	new Map([
		["BrandRiskAnalyzer", "VendorRiskAnalyzer"],
		["brand_site_url", "gateway_site_url"],
		["brandSiteUrl", "gateway_site_url"],
		["conversation_id", "id"],
	]),
);

const theirs = record({
	security_analyzer: { kind: "BrandRiskAnalyzer", history_limit: 3 },
	agent: { kind: "Agent", llm: { model: "m", brand_site_url: "https://example.test" } },
});

describe("aliases of members and kinds", () => {
	test("stand for the specification's names, which are the ones that are written", () => {
		const back = format.toJson(format.fromJson(theirs));
		expect(back.security_analyzer).toMatchObject({ kind: "VendorRiskAnalyzer", history_limit: 3 });
		const llm = object(object(back.agent).llm);
		expect([llm.gateway_site_url, llm.brand_site_url]).toEqual(["https://example.test", undefined]);
	});

	test("are not known unless they are configured", () => {
		expect(summaryOf(violationsOf(() => plain.fromJson(theirs)))).toEqual(["security_analyzer union_tag_invalid"]);
		const agent = object(theirs.agent);
		const message = plain.fromJson(record({ agent }));
		expect(Object.keys(message.unnamedMembers)).toEqual(["/agent/llm/brand_site_url"]);
	});

	test("satisfy a required member", () => {
		const { id, ...others } = record();
		expect(format.fromJson({ ...others, conversation_id: id ?? null }).id).toBe(id);
	});

	test("give way to the specification's name, and the first of several to no other", () => {
		const llm = { brandSiteUrl: "second", brand_site_url: "first" };
		const message = format.fromJson(record({ agent: { kind: "Agent", llm } }));
		expect(object(object(format.toJson(message).agent).llm)).toMatchObject({
			gateway_site_url: "first",
			brandSiteUrl: "second",
		});
		const both = format.fromJson(record({ agent: { kind: "Agent", llm: { ...llm, gateway_site_url: "own" } } }));
		expect(object(object(format.toJson(both).agent).llm)).toMatchObject({ ...llm, gateway_site_url: "own" });
		expect(format.fromMessage(both)).toEqual(both);
	});
});
