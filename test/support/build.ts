import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { ROOT } from "./start-command.ts";

/** Builds dist/ once for all tests, so that those which start the service or pack a package have the present sources. */
export async function setup(): Promise<void> {
	await promisify(execFile)("npm", ["run", "build"], { cwd: ROOT });
}
