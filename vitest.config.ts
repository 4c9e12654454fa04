import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { CountReporter } from "./test/support/count-reporter.ts";
import { LongestFirst } from "./test/support/longest-first.ts";

// Each thread of each service in a test compiles its sources for itself; with what was compiled before, that takes half
// the time. The workers of vitest and the programs that tests start inherit it.
process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, "node_modules", ".cache", "node-compile");

export default defineConfig({
	test: {
		include: ["test/**/*.test.ts"],
		setupFiles: ["test/support/seed.ts"],
		globalSetup: ["test/support/build.ts"],
		reporters: ["default", new CountReporter()],
		sequence: { sequencer: LongestFirst },
		// Most tests wait for processes and disks; one worker for each core but one, the default, leaves two cores idle.
		maxWorkers: 2,
		// The files of a worker share what they import. No test replaces a module, and each one puts back what it sets.
		isolate: false,
		// Real processes and sockets on a busy machine take their time; a test that hangs still ends.
		testTimeout: 120_000,
		hookTimeout: 120_000,
		// So does what a test waits for; the default is one second.
		expect: { poll: { timeout: 30_000 } },
	},
});
