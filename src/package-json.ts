import { readFileSync } from "node:fs";
import { z } from "zod";

/** Reads the name, version and description of the program from its package.json. */
export function packageJson() {
	const members = z.object({ name: z.string(), version: z.string(), description: z.string() });
	return members.parse(JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")));
}
