import { spawnSync } from "node:child_process";
import { chmodSync, chownSync } from "node:fs";
import { ServiceProcess } from "./child.ts";
import { ROOT, START_ARGUMENTS } from "./start-command.ts";
import { TempFolder } from "./temp.ts";

/** Root, whom permissions do not bind, starts services as the user with the fewest rights. */
const NOBODY = process.getuid?.() === 0 ? 65_534 : undefined;

/** Becomes that user, and the program of the arguments. */
const AS_NOBODY = `
	process.setgroups([]);
	process.setgid(${NOBODY});
	process.setuid(${NOBODY});
	process.execve(process.execPath, [process.execPath, ...process.argv.slice(1)], process.env);`;

/** What node is given to start a service that permissions bind. */
const COMMAND = NOBODY === undefined ? START_ARGUMENTS : ["-e", AS_NOBODY, "--", ...START_ARGUMENTS];

/** Whether a service can be started that permissions bind: another user than root may not be able to read the checkout. */
export function permissionsBind(): boolean {
	return spawnSync(process.execPath, [...COMMAND, "--version"], { cwd: ROOT, stdio: "ignore" }).status === 0;
}

/** A folder for the database of a service that permissions bind. */
export class OwnFolder extends TempFolder {
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
