import { defineConfig } from "vitest/config";
import { CountReporter } from "./test/support/count-reporter.ts";

export default defineConfig({
	test: {
		include: ["test/**/*.test.ts"],
		setupFiles: ["test/support/seed.ts"],
		globalSetup: ["test/support/build.ts"],
		reporters: ["default", new CountReporter()],
		// Real processes and sockets on a busy machine take their time; a test that hangs still ends.
		testTimeout: 120_000,
		hookTimeout: 120_000,
	},
});
