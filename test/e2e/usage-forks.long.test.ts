import { expect, test } from "vitest";
import { ENGINES } from "../support/engines.ts";
import { startTestService } from "../support/service.ts";
import { assertForkLaw } from "./usage-forks.ts";

test.each(ENGINES)("with $engine, 300 conversations and forks in any order count their own calls", async ({ open }) => {
	await using databases = await open();
	const service = await startTestService(await databases.create());
	await using restarted = await assertForkLaw(service, 150);
	expect(restarted.http).not.toBe(service.http);
});
