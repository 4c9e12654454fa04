import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { ROOT } from "./support/start-command.ts";

test("npm run clients refuses the name of an unknown client", () => {
	const args = ["clients/run.ts", "go", "perl"];
	const { status, stdout, stderr } = spawnSync(process.execPath, args, {
		cwd: ROOT,
		encoding: "utf8",
		timeout: 60_000,
	});
	expect({ status, stdout, stderr }).toEqual({
		status: 2,
		stdout: "",
		stderr: "there is no client perl; the clients are go, java, python, rust, typescript\n",
	});
});
