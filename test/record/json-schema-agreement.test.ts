import type { JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { deriveJsonSchemas } from "../../scripts/openapi/json-schema.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { cases, corpus } from "../support/fixtures.ts";
import { accepts, compileSchema } from "../support/json-schema.ts";
import { withOneChange } from "../support/with-one-change.ts";

const format = new RecordFormat();
const validate = compileSchema({
	$ref: "#/$defs/ConversationInfo",
	$defs: deriveJsonSchemas(format.plan, "#/$defs/"),
});

test("the JSON Schema accepts every captured request body", () => {
	const refused = corpus().flatMap(({ name, json }) => (validate(json) ? [] : [{ name, errors: validate.errors }]));
	expect(refused).toEqual([]);
});

test("the JSON Schema and the service agree on each case, except for what a schema cannot express", () => {
	const differing: Record<string, string> = {};
	let judged = 0;
	for (const { name, body, raw } of cases()) {
		const json = body ?? parse(raw ?? "");
		if (json === undefined) continue;
		judged++;
		const [service, schema] = [accepts(format, json), validate(json)];
		if (service !== schema) differing[name] = service ? "only the service accepts" : "only the schema accepts";
	}
	expect(judged).toBeGreaterThan(500);
	expect(differing).toEqual({
		// JSON Schema has no keyword for nesting depth.
		"raw agent_state nested 50 deep": "only the schema accepts",
		"raw agent_state nested 100000 deep": "only the schema accepts",
		"ensemble nested 60": "only the schema accepts",
		// This validator reads numbers as doubles: 2^63 - 1 becomes 2^63, which the service refuses.
		"ruling 8: max_iterations of 2^63": "only the schema accepts",
		"ruling 8: max_iterations of 2^63-1 is exact": "only the schema accepts",
		// Validators differ in what a format accepts: this one refuses braces around a UUID, and accepts offsets without
		// minutes and the year 0, which google.protobuf.Timestamp does not have.
		'id="{2a940cac-6ac3-409b-bfb1-f7c2c97455d...': "only the service accepts",
		'created_at="2026-11-21T08:55:04+02"': "only the schema accepts",
		'created_at="0000-01-01T00:00:00Z"': "only the schema accepts",
	});
});

function parse(text: string): JsonValue | undefined {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

/**
 * Whether the schema refused the tag of an object of an unknown kind because it is no string. The service stores such an
 * object; the schema has a type, because generated clients need one.
 */
function hasUntypedTag({ errors }: typeof validate): boolean {
	return (errors ?? []).some(
		({ keyword, schemaPath, instancePath }) =>
			keyword === "type" && schemaPath.includes("/Other") && /\/(kind|type|strategy)$/.test(instancePath),
	);
}

test("the JSON Schema and the service agree on captured bodies with one value replaced or removed", () => {
	const bodies = corpus()
		.filter(({ bytes }) => bytes.length < 20_000)
		.map(({ json }) => json);
	const verdicts = new Set<boolean>();
	fc.assert(
		fc.property(withOneChange(fc.constantFrom(...bodies)), (json) => {
			const verdict = accepts(format, json);
			verdicts.add(verdict);
			expect(validate(json) || hasUntypedTag(validate)).toBe(verdict);
		}),
		{ numRuns: 2000 },
	);
	expect(verdicts).toEqual(new Set([true, false]));
});
