import { expect, test } from "vitest";
import { runTool, TOOL_TIMEOUT } from "./tools.ts";

test.for([
	["types", "tsc", "--project", "."],
	["types of the console", "tsc", "--project", "console"],
	["lint and format", "biome", "check", "--error-on-warnings", "."],
	["lint of the protos", "buf", "lint"],
	["format of the protos", "buf", "format", "--diff", "--exit-code"],
	["compatibility of the protos with the baseline", "buf", "breaking", "proto", "--against", "proto/baseline.binpb"],
] as const)("this check passes: %s", { timeout: TOOL_TIMEOUT }, async ([, tool, ...args], { signal }) => {
	expect(await runTool(signal, tool, ...args)).toEqual({ code: 0, output: expect.any(String) });
});
