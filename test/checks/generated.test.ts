import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";
import { runTool, TOOL_TIMEOUT } from "./tools.ts";

/** Returns the text of each file below a folder, by its path relative to the folder. */
function filesBelow(folder: string): Record<string, string> {
	const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
	return Object.fromEntries(
		entries.map(({ parentPath, name }) => {
			const path = join(parentPath, name);
			return [path.slice(folder.length + 1), readFileSync(path, "utf8")];
		}),
	);
}

test("gen/ has exactly the files that npm run generate makes from the protos", { timeout: TOOL_TIMEOUT }, async ({
	signal,
}) => {
	using folder = new TempFolder();
	const outcome = await runTool(signal, "buf", "generate", "--template", "proto/buf.gen.yaml", "--output", folder.path);
	expect(outcome).toMatchObject({ code: 0 });
	const [committed, generated] = [filesBelow(join(ROOT, "gen")), filesBelow(folder.file("gen"))];
	expect(Object.keys(generated).length).toBeGreaterThan(30);
	const names = new Set([...Object.keys(committed), ...Object.keys(generated)]);
	// Reports only the names, because a diff of generated files says no more than the protos do.
	expect([...names].filter((name) => committed[name] !== generated[name])).toEqual([]);
});
