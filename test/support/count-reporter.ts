import type { Reporter, TestModule } from "vitest/node";

/**
 * Ends the output of a run with the line `N passed, N failed`, which .ci/run reads. An error outside of a test, such as
 * a file that cannot be loaded, counts as one failure. Before it stands a line for each failed test.
 */
export class CountReporter implements Reporter {
	onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
		const tests = modules.flatMap((module) => [...module.children.allTests()]);
		for (const test of tests) {
			const result = test.result();
			if (result.state === "failed") {
				const reason = result.errors.map(({ message }) => message.split("\n", 1)[0]).join(" / ");
				process.stdout.write(`failed: ${test.module.relativeModuleId} > ${test.fullName}: ${reason}\n`);
			}
		}
		const results = tests.map((test) => test.result().state);
		const count = (state: string): number => results.filter((result) => result === state).length;
		const elsewhere = modules.reduce((sum, module) => sum + module.errors().length, unhandledErrors.length);
		const skipped = count("skipped") + count("pending");
		const line = `${count("passed")} passed, ${count("failed") + elsewhere} failed`;
		process.stdout.write(`${skipped === 0 ? line : `${line}, ${skipped} skipped`}\n`);
	}
}
