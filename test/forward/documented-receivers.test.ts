import { test } from "vitest";
import { RECEIVERS, tryReceiver } from "./documented-receivers.ts";

// `npm run test:receivers` runs the others, which need toolchains and packages.
test("the receiver in docs/forwarding.md for Node.js verifies a delivery and refuses a forgery", async () => {
	await tryReceiver(RECEIVERS.node);
});
