import type { JsonValue } from "@bufbuild/protobuf";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { ServiceError } from "../../src/errors.ts";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import type { ExactJsonObject } from "../../src/record/json/json-value.ts";
import type { RecordFormat } from "../../src/record/record-format.ts";

/**
 * Compiles a JSON Schema (draft 2020-12) with the keywords that OpenAPI adds. Formats are asserted, misspelt keywords
 * refused.
 */
export function compileSchema(schema: ExactJsonObject): ValidateFunction {
	const ajv = new Ajv2020({
		strict: true,
		// Both want the keywords of one object repeated in the schemas that are combined with it.
		strictTypes: false,
		strictRequired: false,
		keywords: ["discriminator", "components", "x-enum-descriptions"],
	});
	formats.default(ajv);
	// Its keywords take no bigints.
	return ajv.compile(JSON.parse(stringifyExactJson(schema)));
}

/** Whether the service accepts the JSON form of a record. */
export function accepts(format: RecordFormat, json: JsonValue): boolean {
	try {
		format.parse(Buffer.from(JSON.stringify(json)));
		return true;
	} catch (error) {
		if (error instanceof ServiceError && error.kind === "invalid_record") return false;
		throw error;
	}
}
