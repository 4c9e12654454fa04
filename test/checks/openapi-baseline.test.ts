import { readFileSync } from "node:fs";
import { join } from "node:path";
import { zstdDecompressSync } from "node:zlib";
import { expect, test } from "vitest";
import { incompatibilities } from "../../scripts/openapi/compatible.ts";
import { openApiDocument } from "../../scripts/openapi/document.ts";
import { parseExactJson, stringifyExactJson } from "../../src/record/json/exact-json.ts";
import type { ExactJson } from "../../src/record/json/json-value.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { ROOT } from "../support/start-command.ts";

const baseline = parseExactJson(zstdDecompressSync(readFileSync(join(ROOT, "scripts/openapi/baseline.json.zst")))).json;

/** The exception of docs/upgrade.md: a cost and tokens that were not reported are null. */
const EXCEPTION = [
	"/components/schemas/ConversationSummary/properties/accumulated_cost/type: differs",
	"/components/schemas/ConversationSummary/properties/tokens/$ref: is gone",
	'/components/schemas/ConversationSummary/required: "tokens" is new',
];

test("the OpenAPI document breaks no client of the baseline, with one exception", () => {
	const now = parseExactJson(Buffer.from(stringifyExactJson(openApiDocument(new RecordFormat().plan)))).json;
	expect(incompatibilities(baseline, now)).toEqual(EXCEPTION);
});

const EARLIER: ExactJson = {
	paths: {
		"/things": {
			get: {
				summary: "Lists",
				parameters: [{ name: "size", in: "query", schema: { type: "integer", minimum: 0 } }],
				responses: { "200": { $ref: "#/components/schemas/Thing" } },
			},
		},
	},
	components: {
		schemas: {
			Thing: {
				type: "object",
				required: ["id"],
				properties: { id: { type: "string" }, description: { enum: ["a", "b"] }, kind: { oneOf: [{ $ref: "#/A" }] } },
			},
		},
	},
};

/** Returns the document with a text replaced. */
function changed(text: string, by: string): ExactJson {
	const before = JSON.stringify(EARLIER);
	if (!before.includes(text)) throw new Error(`the document lacks ${text}`);
	return JSON.parse(before.replace(text, by));
}

const PARAMETERS = "/paths//things/get/parameters";
const THING = "/components/schemas/Thing";
const SIZE = '{"name":"size","in":"query","schema":{"type":"integer","minimum":0}}';

test.each([
	["another summary", '"summary":"Lists"', '"summary":"Lists things"', []],
	["a path", '"paths":{', '"paths":{"/others":{},', []],
	["a value", '["a","b"]', '["a","b","c"]', []],
	["a member", '"properties":{', '"properties":{"pattern":{"type":"string"},', []],
	["an arm", '[{"$ref":"#/A"}]', '[{"$ref":"#/0"},{"$ref":"#/A"}]', []],
	["a parameter", `[${SIZE}`, `[{"name":"a","in":"query"},${SIZE}`, []],
	[
		"a parameter that must be given",
		`[${SIZE}`,
		`[{"name":"a","in":"query","required":true},${SIZE}`,
		[`${PARAMETERS}: {"name":"a","in":"query","required":true} is new`],
	],
	["a path that is gone", '"/things"', '"/objects"', ["/paths//things: is gone"]],
	["a parameter of another name", '"name":"size"', '"name":"page"', [`${PARAMETERS}/0: is gone`]],
	["a narrower parameter", '"minimum":0', '"minimum":0,"maximum":9', [`${PARAMETERS}/0: is gone`]],
	["a value that is gone", '["a","b"]', '["a"]', [`${THING}/properties/description/enum/1: is gone`]],
	["a member that is gone", '"id":{"type":"string"},', "", [`${THING}/properties/id: is gone`]],
	["another type", '"id":{"type":"string"}', '"id":{"type":"number"}', [`${THING}/properties/id/type: differs`]],
	[
		"a pattern",
		'"id":{"type":"string"}',
		'"id":{"type":"string","pattern":"x"}',
		[`${THING}/properties/id/pattern: is new`],
	],
	["a required member", '["id"]', '["id","kind"]', [`${THING}/required: "kind" is new`]],
	["a member that is no longer required", '["id"]', "[]", [`${THING}/required/0: is gone`]],
	["an arm that is gone", '[{"$ref":"#/A"}]', '[{"$ref":"#/B"}]', [`${THING}/properties/kind/oneOf/0: is gone`]],
])("the comparison of a document with %s", (_, text, by, expected) => {
	expect(incompatibilities(EARLIER, changed(text, by))).toEqual(expected);
});
