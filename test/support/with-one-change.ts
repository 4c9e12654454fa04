import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { isJsonObject } from "../../src/record/json/json-value.ts";

const values = fc.oneof(
	fc.constantFrom<(JsonValue | undefined)[]>(
		...[undefined, null, true, 0, -1, 1, 1.5, 2 ** 53, -(2 ** 53), "", "text", "idle", "LOW", "system_prompt.j2"],
		...["x".repeat(257), "😀".repeat(256), [], ["a"], ["a", "b", "c"], ["a", "b", "c", "d"], [["a", "b", "c"]], [{}]],
		...[{}, { kind: "Agent" }, { kind: "NeverConfirm" }, { kind: "PipelineCondenser", condensers: 1 }],
		...[{ kind: "Other" }, { type: "keyword", keywords: 1 }, { type: "other" }, { Key: "value" }, { key: "value" }],
	),
	fc.jsonValue({ maxDepth: 2 }).map((value): JsonValue => JSON.parse(JSON.stringify(value))),
);

/** Generates records in which one value is removed or replaced by another value, valid or not. */
export function withOneChange(records: fc.Arbitrary<JsonValue>): fc.Arbitrary<JsonValue> {
	return fc.tuple(records, fc.nat(), values).map(([record, place, value]) => {
		const copy = structuredClone(record);
		const places = placesIn(copy);
		places[place % places.length]?.(value);
		return copy;
	});
}

/** Returns a function for each member and item inside a value, which replaces it or removes a member. */
function placesIn(json: JsonValue): ((value: JsonValue | undefined) => void)[] {
	if (Array.isArray(json))
		return json.flatMap((item, index) => [
			(value: JsonValue | undefined) => {
				json[index] = value ?? null;
			},
			...placesIn(item),
		]);
	if (!isJsonObject(json)) return [];
	return Object.entries(json).flatMap(([name, member]) => [
		(value: JsonValue | undefined) => {
			if (value === undefined) delete json[name];
			else json[name] = value;
		},
		...placesIn(member),
	]);
}

/**
 * Generates records in which up to four lists and objects, at any depth, get up to 150 further items of one value, which
 * is mostly invalid there.
 */
export function withManyFaults(records: fc.Arbitrary<JsonValue>): fc.Arbitrary<JsonValue> {
	const fault = fc.tuple(fc.nat(), fc.integer({ min: 40, max: 150 }), values);
	return fc.tuple(records, fc.array(fault, { minLength: 1, maxLength: 4 })).map(([record, faults]) => {
		const copy = structuredClone(record);
		for (const [place, count, value = null] of faults) {
			const containers = containersIn(copy);
			const container = containers[place % containers.length];
			for (let index = 0; index < count; index++)
				if (Array.isArray(container)) container.push(structuredClone(value));
				else if (container !== undefined) container[`n${index}`] = structuredClone(value);
		}
		return copy;
	});
}

/** Returns a value's lists and objects at all levels. */
function containersIn(json: JsonValue): (JsonValue[] | JsonObject)[] {
	if (typeof json !== "object" || json === null) return [];
	return [json, ...Object.values(json).flatMap(containersIn)];
}
