import type { JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { deriveGlance } from "../../src/record/glance.ts";
import { isJsonObject } from "../../src/record/plan/plan.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { deriveFullSchema } from "../../src/record/validation/schema.ts";
import { jsonOf } from "../support/arbitrary.ts";
import { cases, corpus } from "../support/fixtures.ts";

const { plan } = new RecordFormat();
const glance = deriveGlance(plan);
const schema = deriveFullSchema(plan);
const judged = (json: unknown) => schema.safeParse(json).success;

/** A copy in which the value that `choices` lead to is another one. */
function replaced(json: JsonValue, choices: readonly number[], value: JsonValue): JsonValue {
	const [choice, ...others] = choices;
	if (choice === undefined || typeof json !== "object" || json === null) return value;
	const names = Object.keys(json);
	const name = names[choice % Math.max(names.length, 1)];
	if (name === undefined) return value;
	if (Array.isArray(json))
		return json.map((item, index) => (String(index) === name ? replaced(item, others, value) : item));
	return isJsonObject(json) ? { ...json, [name]: replaced(json[name] ?? null, others, value) } : value;
}

test("every real body is taken at a glance", () => {
	expect(corpus().filter(({ json }) => !glance(json))).toEqual([]);
});

test("what the glance takes, the schema takes", () => {
	for (const { body } of cases()) if (body !== undefined) expect(glance(body)).toBe(judged(body));
	const bodies = corpus().map(({ json }) => json);
	const values: JsonValue[] = [null, true, 0, -1, 1.5, 2 ** 53, "", "x", "Agent", [], ["x"], {}, { kind: "Agent" }];
	const mutation = fc.record({
		body: fc.nat(bodies.length - 1),
		choices: fc.array(fc.nat(50), { minLength: 1, maxLength: 6 }),
		value: fc.constantFrom(...values),
	});
	fc.assert(
		fc.property(mutation, ({ body, choices, value }) => {
			const mutated = replaced(bodies[body] ?? null, choices, value);
			expect(glance(mutated)).toBe(judged(mutated));
		}),
		{ numRuns: 3_000 },
	);
});

test("generated records are taken by both", () => {
	fc.assert(
		fc.property(jsonOf(plan), (json) => {
			expect([glance(json), judged(json)]).toEqual([true, true]);
		}),
		{ numRuns: 300 },
	);
});
