import type { JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { toValue } from "../../../src/record/json/free-form.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { object, record } from "../../support/fixtures.ts";
import { violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();

/** A record with one member that no field names, at a place that the test chooses. */
function withUnnamed(pointer: string, json: JsonObject = record()) {
	const message = format.fromJson(json);
	message.unnamedMembers[pointer] = toValue("kept");
	return message;
}

const placed = record({
	available_models: [{ model_id: "a" }, { model_id: "b" }],
	blocked_actions: { "a/b~c": "reason" },
	agent_state: { own: 1 },
	hook_config: { stop: [{ hooks: [{ command: "true" }] }] },
	security_analyzer: { kind: "PatternSecurityAnalyzer", high_patterns: [["a", "b", "c"]] },
	title: "t",
});

describe("members that no field names", () => {
	test("are kept by their JSON Pointer and come back at their places", () => {
		// Only JSON.parse makes `__proto__` a member; a literal would set the prototype.
		const own = JSON.parse('{"__proto__":{"polluted":true},"constructor":1,"a/b~c":[1,{"x":null}],"":""}');
		const json = record({ ...own, agent: { kind: "ACPAgent", acp_command: [], ...own } });
		const message = format.fromJson(json);
		expect(Object.keys(message.unnamedMembers).sort()).toEqual([
			"/",
			"/__proto__",
			"/agent/",
			"/agent/__proto__",
			"/agent/a~1b~0c",
			"/agent/constructor",
			"/a~1b~0c",
			"/constructor",
		]);
		const back = format.toJson(message);
		for (const place of [back, object(back.agent)]) {
			expect(Object.getOwnPropertyDescriptor(place, "__proto__")?.value).toEqual({ polluted: true });
			expect(Object.getPrototypeOf(place)).toBe(Object.prototype);
			expect([place[""], place["a/b~c"], place.constructor]).toEqual(["", [1, { x: null }], 1]);
		}
		expect("polluted" in {}).toBe(false);
	});

	test.each([
		"/news",
		"/available_models/1/news",
		"/agent/news",
		"/workspace/news",
		"/hook_config/stop/0/news",
		"/hook_config/stop/0/hooks/0/news",
		"/security_analyzer/news",
		"/a~1b~0c",
		"/",
		"/__proto__",
	])("may stand at %s in a message", (pointer) => {
		const message = withUnnamed(pointer, placed);
		expect(format.fromMessage(message).unnamedMembers).toEqual(message.unnamedMembers);
	});

	test.each([
		["no pointer", "news"],
		["the record itself", ""],
		["a bad escape", "/a~2"],
		["a field that is set", "/title"],
		["a field that is not set", "/persistence_dir"],
		["the discriminator", "/agent/kind"],
		["an item of an array", "/available_models/2"],
		["an array's member", "/available_models/length"],
		["an item beyond the end", "/available_models/2/news"],
		["an index with a leading zero", "/available_models/01/news"],
		["an entry of a map", "/blocked_actions/news"],
		["free-form JSON", "/agent_state/news"],
		["a closed object", "/hook_config/news"],
		["a tuple", "/security_analyzer/high_patterns/0/3"],
		["a string", "/title/news"],
		["what is not there", "/metrics/news"],
		["a prototype", "/constructor/news"],
		["an inherited object", "/__proto__/news"],
	])("may not stand at %s", (_, pointer) => {
		const violations = violationsOf(() => format.fromMessage(withUnnamed(pointer, placed)));
		expect(violations).toEqual([
			{
				path: ["unnamed_members", pointer],
				type: "value_error",
				message: "Value error, not a JSON Pointer to a member that the schema leaves unnamed",
			},
		]);
		expect("news" in {}).toBe(false);
	});

	test("that hold a field's alias stay apart from the field that is there under its own name", () => {
		const hooks = { stop: [{ hooks: [{ async: true, async_: false }] }] };
		const message = format.fromJson(record({ hook_config: hooks }));
		expect(message.hookConfig?.stop[0]?.hooks[0]?.runAsync).toBe(true);
		expect(Object.keys(message.unnamedMembers)).toEqual(["/hook_config/stop/0/hooks/0/async_"]);
		expect(format.toJson(format.fromMessage(message)).hook_config).toMatchObject(hooks);
	});
});
