import { spawnSync } from "node:child_process";
import { closeSync, openSync, rmSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";
import { ServiceProcess } from "./child.ts";
import { START_ARGUMENTS } from "./start-command.ts";
import { TempFolder } from "./temp.ts";

/** Search path of the system's tools. Services of tests are started without one. */
const PATH = "/usr/bin:/bin:/usr/sbin:/sbin";
/** Root needs no user namespace for a mount namespace. */
const UNSHARE = process.getuid?.() === 0 ? ["-m"] : ["-rm"];

/** Starts a service whose files may grow to 2 MiB each. Writes beyond that fail with EFBIG. */
export async function startWithFileLimit(database: string): Promise<ServiceProcess> {
	const script = 'ulimit -f 4096; exec "$0" "$@"';
	return await ServiceProcess.start(
		database,
		{ PATH },
		["-c", script, process.execPath, ...START_ARGUMENTS],
		"/bin/sh",
	);
}

/** Returns whether this user may mount a file system in a new namespace. Containers often forbid it. */
export function canMount(): boolean {
	using folder = new TempFolder();
	const command = ["mount", "-t", "tmpfs", "tmpfs", folder.path];
	return spawnSync("unshare", [...UNSHARE, ...command], { stdio: "ignore", env: { PATH } }).status === 0;
}

/** Runs a service until it ends, with its database in a folder that is mounted read-only. */
export async function runReadOnly(folder: string, env: Readonly<Record<string, string>>) {
	const script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"';
	const command = ["sh", "-c", script, "sh", folder, process.execPath, ...START_ARGUMENTS];
	return await ServiceProcess.runCommand({ PATH, ...env }, [...UNSHARE, ...command], "unshare");
}

/** A service whose database is on its own small file system. */
export class SmallDisk implements AsyncDisposable {
	readonly service: ServiceProcess;
	readonly #folder: TempFolder;

	private constructor(folder: TempFolder, service: ServiceProcess) {
		this.#folder = folder;
		this.service = service;
	}

	/** @param size size of the file system, such as `8m` */
	static async start(size: string): Promise<SmallDisk> {
		const folder = new TempFolder();
		const script = `mount -t tmpfs -o size=${size} tmpfs "$1" && shift && exec "$@"`;
		const command = ["sh", "-c", script, "sh", folder.path, process.execPath, ...START_ARGUMENTS];
		const database = folder.file("conversations.db");
		return new SmallDisk(folder, await ServiceProcess.start(database, { PATH }, [...UNSHARE, ...command], "unshare"));
	}

	/** Fills the file system. The service may write meanwhile, so it is filled block by block until it takes no more. */
	fill(): void {
		const block = Buffer.alloc(statfsSync(this.#root).bsize);
		const filler = openSync(join(this.#root, "filler"), "w");
		try {
			for (;;) {
				writeSync(filler, block);
			}
		} catch (error) {
			if (!(error instanceof Error && "code" in error && error.code === "ENOSPC")) {
				throw error;
			}
		} finally {
			closeSync(filler);
		}
	}

	/** Frees the space that `fill` took. */
	free(): void {
		rmSync(join(this.#root, "filler"));
	}

	/** The folder in the service's mount namespace (proc(5), root). */
	get #root(): string {
		return `/proc/${this.service.pid}/root${this.#folder.path}`;
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.service[Symbol.asyncDispose]();
		this.#folder[Symbol.dispose]();
	}
}
