/**
 * Runs the receivers of docs/forwarding.md in Python and Go: `npm run test:receivers`. They need `python3` or `go`, and
 * the registries of their packages. What is not installed is skipped. `npm test` runs the one for Node.js.
 */
import { spawnSync } from "node:child_process";
import { RECEIVERS, tryReceiver } from "../test/forward/documented-receivers.ts";

for (const [name, program, version] of [
	["python", "python3", "--version"],
	["go", "go", "version"],
] as const) {
	if (spawnSync(program, [version]).status !== 0) console.log(`skipped ${name}: there is no ${program}`);
	else {
		await tryReceiver(RECEIVERS[name]);
		console.log(`ok      ${name}`);
	}
}
