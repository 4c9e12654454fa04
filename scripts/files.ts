import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The text of each file below a folder, by its path from there. */
export function filesBelow(folder: string): Map<string, string> {
	const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
	return new Map(
		entries.map(({ parentPath, name }) => {
			const path = join(parentPath, name);
			return [path.slice(folder.length + 1), readFileSync(path, "utf8")];
		}),
	);
}
