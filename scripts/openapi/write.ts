/** Writes the OpenAPI document to dist/openapi.json, from which the service serves it. A step of `npm run build`. */

import { writeFileSync } from "node:fs";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { openApiDocument } from "./document.ts";

const text = stringifyExactJson(openApiDocument(new RecordFormat().plan));
writeFileSync(new URL("../../dist/openapi.json", import.meta.url), text);
