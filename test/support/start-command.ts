import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

const packageJson = z.object({ scripts: z.object({ start: z.string() }) });

/** Folder of the project, in which npm runs its scripts. */
export const ROOT = join(import.meta.dirname, "..", "..");

/** What `npm start` gives to node in a checkout of the project: V8 options and the program. */
export function startArguments(root: string): readonly string[] {
	const { scripts } = packageJson.parse(JSON.parse(readFileSync(join(root, "package.json"), "utf8")));
	return scripts.start.replace(/^(?:exec )?node /, "").split(" ");
}

/** What `npm start` gives to node in this checkout. */
export const START_ARGUMENTS = startArguments(ROOT);
