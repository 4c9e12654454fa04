import { afterAll, beforeAll, describe } from "vitest";
import { storeConformance, storeLaws } from "../conformance.ts";
import { postgresHarness } from "../harness.ts";
import { Databases } from "./databases.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

const harness = postgresHarness(() => databases);

describe("PostgreSQL store", () => {
	storeConformance(harness);
});

describe("PostgreSQL stores", () => {
	storeLaws(harness);
});
