import { type ChildProcess, spawn } from "node:child_process";
import { ignorePipeErrors } from "./pipes.ts";

/**
 * Starts a shell that runs a command when the tests' process ends, however it ends, because that closes the shell's
 * input.
 *
 * @param argument what the command gets as `$0`
 * @param user user and group of the shell; default: those of the tests
 */
export function afterTests(
	command: string,
	argument: string,
	user: { readonly uid?: number; readonly gid?: number } = {},
): ChildProcess {
	const guard = spawn("sh", ["-c", `read -r end; ${command}`, argument], {
		...user,
		detached: true,
		stdio: ["pipe", "ignore", "ignore"],
	});
	ignorePipeErrors(guard).unref();
	return guard;
}
