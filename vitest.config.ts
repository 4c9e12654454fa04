import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { CountReporter } from "./test/support/count-reporter.ts";
import { LongestFirst } from "./test/support/longest-first.ts";

// Each process and thread compiles what it loads for itself; with what was compiled before, that takes half the time. The
// workers of vitest and the programs that tests start inherit it.
process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, "node_modules", ".cache", "node-compile");

// A run judges the change and not its luck: the random choices are the same each time. TEST_SEED makes other ones.
process.env.TEST_SEED ??= "1";

export default defineConfig({
	test: {
		include: ["test/**/*.test.ts"],
		setupFiles: ["test/support/seed.ts"],
		globalSetup: ["test/support/build.ts"],
		reporters: ["default", new CountReporter()],
		sequence: { sequencer: LongestFirst },
		// A third of the time a test waits for processes, pages and disks, so two workers leave two cores partly idle.
		maxWorkers: 3,
		execArgv: ["--import", join(import.meta.dirname, "test", "support", "built-threads.js")],
		// The files of a worker share what they import. No test replaces a module, and each one puts back what it sets.
		isolate: false,
		// Real processes and sockets on a busy machine take their time; a test that hangs still ends.
		testTimeout: 300_000,
		hookTimeout: 300_000,
		// So does what a test waits for; the default is one second.
		expect: { poll: { timeout: 30_000 } },
	},
});
