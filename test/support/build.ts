import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";

/**
 * Builds dist/ once for all tests, so that tests that start the service or pack a package use the current sources. This
 * module must not import anything that reads dist/, which may not exist yet.
 */
export async function setup({ config }: TestProject): Promise<void> {
	await promisify(execFile)("npm", ["run", "build"], { cwd: config.root });
}
