import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";

/**
 * Builds dist/ once for all tests, so that those which start the service or pack a package have the present sources.
 * There may be none yet, so nothing is imported that reads it.
 */
export async function setup({ config }: TestProject): Promise<void> {
	await promisify(execFile)("npm", ["run", "build"], { cwd: config.root });
}
