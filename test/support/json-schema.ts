import type { JsonValue } from "@bufbuild/protobuf";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { ServiceError } from "../../src/errors.ts";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import type { ExactJsonObject } from "../../src/record/json/json-value.ts";
import type { RecordFormat } from "../../src/record/record-format.ts";

/**
 * Compiles a JSON Schema (draft 2020-12) with OpenAPI's additional keywords. Formats are checked, and unknown keywords
 * are errors.
 */
export function compileSchema(schema: ExactJsonObject): ValidateFunction {
	const ajv = new Ajv2020({
		strict: true,
		// Both would require that combined schemas repeat the keywords of the object.
		strictTypes: false,
		strictRequired: false,
		keywords: ["discriminator", "components", "x-enum-descriptions", "x-enum-varnames"],
	});
	formats.default(ajv);
	// Ajv's keywords accept no bigints.
	return ajv.compile(JSON.parse(stringifyExactJson(schema)));
}

/** Returns whether the service accepts the JSON form of a record. */
export function accepts(format: RecordFormat, json: JsonValue): boolean {
	try {
		format.parse(Buffer.from(JSON.stringify(json)));
		return true;
	} catch (error) {
		if (error instanceof ServiceError && error.kind === "invalid_record") return false;
		throw error;
	}
}
