import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { object } from "../support/fixtures.ts";
import { ROOT } from "../support/start-command.ts";

test.each(Object.keys(packageJson.dependencies))("the lockfile has only one copy of %s", (name) => {
	// Copies of a library do not recognise each other's messages, errors and symbols.
	const lockfile = object(JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")));
	const copies = Object.keys(object(lockfile.packages)).filter((path) => path.endsWith(`node_modules/${name}`));
	expect(copies).toEqual([`node_modules/${name}`]);
});
