import { accessSync, constants, mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The file system in memory of Linux. */
const SHARED_MEMORY = "/dev/shm";
/** Free bytes that it needs, and free memory: several times what the tests store at the same time. */
const NEEDED_BYTES = 4 * 2 ** 30;

/** Folders that exist. An exit listener removes them, for the case that a test process leaves by process.exit. */
const folders = new Set<TempFolder>();
process.on("exit", () => {
	for (const folder of folders) folder[Symbol.dispose]();
});

/**
 * Where folders are made: in memory if there is room, because there a commit takes 5 microseconds and not milliseconds;
 * otherwise in the folder for temporary files.
 */
const PARENT = hasRoomInMemory() ? SHARED_MEMORY : tmpdir();

function hasRoomInMemory(): boolean {
	try {
		accessSync(SHARED_MEMORY, constants.W_OK | constants.X_OK);
		const { bavail, bsize } = statfsSync(SHARED_MEMORY);
		return Math.min(bavail * bsize, process.availableMemory()) >= NEEDED_BYTES;
	} catch {
		return false;
	}
}

/** A folder that is removed with its content when it is disposed of. */
export class TempFolder {
	readonly path: string;

	/** @param place `disk` for tests of the disk, and for programs, which a file system in memory may refuse to run */
	constructor(place: "anywhere" | "disk" = "anywhere") {
		this.path = mkdtempSync(join(place === "disk" ? tmpdir() : PARENT, "conversations-"));
		folders.add(this);
	}

	/** Returns the path of a file in the folder. */
	file(name: string): string {
		return join(this.path, name);
	}

	/** Returns the bytes of each file in the folder, by name. A socket has none. */
	contents(): Map<string, Buffer> {
		const entries = readdirSync(this.path, { withFileTypes: true }).filter((entry) => !entry.isSocket());
		return new Map(entries.map(({ name }) => [name, readFileSync(join(this.path, name))]));
	}

	[Symbol.dispose](): void {
		folders.delete(this);
		rmSync(this.path, { recursive: true, force: true });
	}
}
