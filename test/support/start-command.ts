import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

const packageJson = z.object({ scripts: z.object({ start: z.string() }) });

/** Folder of the project, in which npm runs its scripts. */
export const ROOT = join(import.meta.dirname, "..", "..");

/** How `npm start` runs the program. */
export interface StartCommand {
	/** Variables that the program's first line adds to the environment. */
	readonly environment: Readonly<Record<string, string>>;
	/** Arguments for node: V8 options and the program. */
	readonly args: readonly string[];
}

/** Returns how `npm start` runs a built checkout of the project. */
export function startCommand(root: string): StartCommand {
	const { scripts } = packageJson.parse(JSON.parse(readFileSync(join(root, "package.json"), "utf8")));
	const [command = "", ...args] = scripts.start.replace(/^exec /, "").split(" ");
	// Older checkouts have node and its options in the script, newer ones in the first line of the program.
	if (command === "node") return { environment: {}, args };
	const firstLine = readFileSync(join(root, command), "utf8").split("\n", 1)[0] ?? "";
	const words = firstLine.replace(/^#!\S+ -S /, "").split(" ");
	const node = words.indexOf("node");
	const environment = Object.fromEntries(
		words.slice(0, node).map((word): [string, string] => {
			const [name = "", value = ""] = word.split("=");
			return [name, value];
		}),
	);
	return { environment, args: [...words.slice(node + 1), command, ...args] };
}

/** How `npm start` runs this checkout. */
export const { environment: START_ENVIRONMENT, args: START_ARGUMENTS } = startCommand(ROOT);
