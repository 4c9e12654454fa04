import { defineConfig } from "vitest/config";
import { CountReporter } from "./test/support/count-reporter.ts";

export default defineConfig({
	test: {
		include: ["test/**/*.test.ts"],
		setupFiles: ["test/support/seed.ts"],
		globalSetup: ["test/support/build.ts"],
		reporters: ["default", new CountReporter()],
		// Most tests wait for processes and disks; one worker for each core but one, the default, leaves two cores idle.
		maxWorkers: 2,
		// Real processes and sockets on a busy machine take their time; a test that hangs still ends.
		testTimeout: 120_000,
		hookTimeout: 120_000,
	},
});
