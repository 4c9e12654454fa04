import type { JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { toValue } from "../../../src/record/json/json-form.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { object, record } from "../../support/fixtures.ts";
import { violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();

/** Returns a record as a message, with an unnamed member at the given JSON Pointer. */
function withUnnamed(pointer: string, json: JsonObject = record()) {
	const message = format.fromJson(json);
	message.unnamedMembers[pointer] = toValue("kept");
	return message;
}

const base = record({
	available_models: [{ model_id: "a" }, { model_id: "b" }],
	blocked_actions: { "a/b~c": "reason" },
	agent_state: { own: 1 },
	hook_config: { stop: [{ hooks: [{ command: "true" }] }] },
	security_analyzer: { kind: "PatternSecurityAnalyzer", high_patterns: [["a", "b", "c"]] },
	title: "t",
});

describe("members that no field names", () => {
	test("are stored by their JSON Pointer and written back at the same places", () => {
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
		["text that is not a JSON Pointer", "news"],
		["the record itself", ""],
		["a pointer with a bad escape", "/a~2"],
		["a field that is set", "/title"],
		["a field that is not set", "/persistence_dir"],
		["the discriminator", "/agent/kind"],
		["an array item that is not there", "/available_models/2"],
		["the length of an array", "/available_models/length"],
		["a member of an item beyond the end", "/available_models/2/news"],
		["an index with a leading zero", "/available_models/01/news"],
		["an entry of a map", "/blocked_actions/news"],
		["a member of free-form JSON", "/agent_state/news"],
		["a member of a closed object", "/hook_config/news"],
		["an item of a tuple", "/security_analyzer/high_patterns/0/3"],
		["a member of a string", "/title/news"],
		["a member of an object that is not there", "/metrics/news"],
		["a member of an inherited function", "/constructor/news"],
		["a member of a prototype", "/__proto__/news"],
	])("are refused in a message at %s", (_, pointer) => {
		const violations = violationsOf(() => format.fromMessage(withUnnamed(pointer, base)));
		expect(violations).toEqual([
			{
				path: ["unnamed_members", pointer],
				type: "value_error",
				message: "Value error, must be a JSON Pointer to a member that the schema does not name",
			},
		]);
		expect("news" in {}).toBe(false);
	});

	test("with the name of a field's alias do not replace the field that is set", () => {
		const hooks = { stop: [{ hooks: [{ async: true, async_: false }] }] };
		const message = format.fromJson(record({ hook_config: hooks }));
		expect(message.hookConfig?.stop[0]?.hooks[0]?.runAsync).toBe(true);
		expect(Object.keys(message.unnamedMembers)).toEqual(["/hook_config/stop/0/hooks/0/async_"]);
		expect(format.toJson(format.fromMessage(message)).hook_config).toMatchObject(hooks);
	});
});
