import { spawnSync } from "node:child_process";
import { chmodSync, chownSync } from "node:fs";
import { ServiceProcess } from "./child.ts";
import { ROOT, START_ARGUMENTS } from "./start-command.ts";
import { TempFolder } from "./temp.ts";

/** Unprivileged user as whom root starts services, because permissions do not apply to root. */
const NOBODY = process.getuid?.() === 0 ? 65_534 : undefined;

/** Switches to that user and replaces the process with node, run with the given arguments. */
const AS_NOBODY = `
	process.setgroups([]);
	process.setgid(${NOBODY});
	process.setuid(${NOBODY});
	process.execve(process.execPath, [process.execPath, ...process.argv.slice(1)], process.env);`;

/** Arguments for node that start a service to which permissions apply. */
const COMMAND = NOBODY === undefined ? START_ARGUMENTS : ["-e", AS_NOBODY, "--", ...START_ARGUMENTS];

/** Returns whether such a service can be started. Another user than root may not be able to read the checkout. */
export function permissionsBind(): boolean {
	return spawnSync(process.execPath, [...COMMAND, "--version"], { cwd: ROOT, stdio: "ignore" }).status === 0;
}

/** A folder for the database of a service to which permissions apply. */
export class UnprivilegedFolder extends TempFolder {
	readonly database = this.file("conversations.db");

	constructor() {
		super();
		if (NOBODY !== undefined) chownSync(this.path, NOBODY, NOBODY);
	}

	/** Sets the permissions of the folder. */
	permit(mode: number): void {
		chmodSync(this.path, mode);
	}

	/** Starts a service on the database. */
	start(): Promise<ServiceProcess> {
		return ServiceProcess.start(this.database, {}, COMMAND);
	}

	/** Runs a service that cannot start. */
	run(env: Readonly<Record<string, string>>): ReturnType<typeof ServiceProcess.runCommand> {
		return ServiceProcess.runCommand(env, COMMAND);
	}

	override [Symbol.dispose](): void {
		this.permit(0o700);
		super[Symbol.dispose]();
	}
}
