import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

const packageJson = z.object({ scripts: z.object({ start: z.string() }) });

/** Folder of the project, in which npm runs its scripts. */
export const ROOT = join(import.meta.dirname, "..", "..");

/** What `npm start` gives to node in a built checkout of the project: V8 options and the program. */
export function startArguments(root: string): readonly string[] {
	const { scripts } = packageJson.parse(JSON.parse(readFileSync(join(root, "package.json"), "utf8")));
	const [command = "", ...args] = scripts.start.replace(/^exec /, "").split(" ");
	// Earlier states of the project name node and its options in the script, later ones in the program's first line.
	if (command === "node") return args;
	const firstLine = readFileSync(join(root, command), "utf8").split("\n", 1)[0] ?? "";
	return [...firstLine.replace(/^#!\S+ -S node /, "").split(" "), command, ...args];
}

/** What `npm start` gives to node in this checkout. */
export const START_ARGUMENTS = startArguments(ROOT);
