import type { ChildProcess } from "node:child_process";

/**
 * Ignores errors of the pipes to a child process, and returns the process. When it is killed, a pipe can fail with
 * ECONNRESET, which would end the tests. What became of the process shows in its end and in what it wrote.
 */
export function ignorePipeErrors<Child extends ChildProcess>(child: Child): Child {
	for (const pipe of child.stdio) pipe?.on("error", () => undefined);
	return child;
}
