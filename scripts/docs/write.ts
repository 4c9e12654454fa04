/** Writes the tables of docs/ that follow from the code. `npm run docs` runs it. */

import { globSync, readFileSync, writeFileSync } from "node:fs";
import { withTables } from "./tables.ts";

for (const page of globSync(new URL("../../docs/*.md", import.meta.url).pathname)) {
	const text = readFileSync(page, "utf8");
	const written = withTables(text);
	if (written !== text) writeFileSync(page, written);
}
