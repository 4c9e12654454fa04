import { execFile } from "node:child_process";
import { accessSync, constants, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";

/** What `npm run build` reads. The lock file in node_modules/ changes with the installed packages. */
const READ_BY_BUILD = ["console", "gen", "proto", "scripts", "src", "third_party"];
const FILES_READ_BY_BUILD = ["package.json", "node_modules/.package-lock.json"];

/**
 * Builds dist/ once for all tests, so that tests that start the service or pack a package use the current sources. This
 * module must not import anything that reads dist/, which may not exist yet.
 */
export async function setup({ config: { root } }: TestProject): Promise<void> {
	if (!isBuilt(root)) await promisify(execFile)("npm", ["run", "build"], { cwd: root });
}

/** Returns whether dist/ has been built completely and nothing that a build reads was changed, added or removed since. */
function isBuilt(root: string): boolean {
	const program = join(root, "dist", "main.js");
	try {
		// The last step of a build makes the program executable.
		accessSync(program, constants.X_OK);
		const { mtimeMs: built } = statSync(program);
		// A file that is added or removed changes the time of its folder.
		const read = READ_BY_BUILD.flatMap((folder) => [
			folder,
			...readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((name) => join(folder, name)),
		]);
		return [...read, ...FILES_READ_BY_BUILD].every((path) => statSync(join(root, path)).mtimeMs < built);
	} catch {
		return false;
	}
}
