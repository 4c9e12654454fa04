/**
 * Writes the OpenAPI document to dist/openapi.json, from which the service serves it. A step of `npm run build`. With
 * `--baseline` it writes the document with which later ones are compared. A step of `npm run baseline`.
 */

import { writeFileSync } from "node:fs";
import { zstdCompressSync } from "node:zlib";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { openApiDocument } from "./document.ts";

const text = stringifyExactJson(openApiDocument(new RecordFormat().plan));
if (process.argv.includes("--baseline"))
	writeFileSync(new URL("baseline.json.zst", import.meta.url), zstdCompressSync(text));
else writeFileSync(new URL("../../dist/openapi.json", import.meta.url), text);
