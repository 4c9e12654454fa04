import type { JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordSchema } from "../../../src/record/validation/schema.ts";
import { listViolations } from "../../../src/record/validation/violations.ts";
import { jsonOf } from "../../support/arbitrary.ts";
import { corpus } from "../../support/fixtures.ts";
import { withOneChange } from "../../support/with-one-change.ts";

const { plan } = new RecordFormat();
const schema = new RecordSchema(plan);

test("the compiled code accepts exactly the records of which no violation is listed", () => {
	const real = fc.constantFrom(...corpus().map(({ json }) => json));
	const records = fc.oneof(jsonOf(plan), withOneChange(jsonOf(plan)), withOneChange(real));
	const verdicts = new Set<boolean>();
	fc.assert(
		fc.property(records, (json) => {
			const valid = schema.isValid(json);
			verdicts.add(valid);
			expect(valid).toBe(listViolations(schema, json).length === 0);
		}),
		{ numRuns: 3000 },
	);
	expect(verdicts).toEqual(new Set([true, false]));
});

test("validation takes a time that does not double with each level around an invalid value", () => {
	const nested = (innermost: JsonValue): JsonValue => {
		let condenser: JsonValue = { kind: "PipelineCondenser", condensers: innermost };
		for (let depth = 0; depth < 100; depth++) condenser = { kind: "PipelineCondenser", condensers: [condenser] };
		return {
			id: "00000000-0000-4000-8000-000000000000",
			workspace: { kind: "LocalWorkspace", working_dir: "/" },
			agent: { kind: "Agent", llm: {}, condenser },
		};
	};
	// With 2^100 validations the second call would not end.
	expect([[], 1, []].map((innermost) => schema.isValid(nested(innermost)))).toEqual([true, false, true]);
});
