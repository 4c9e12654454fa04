import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A folder that is removed with its content when it is disposed of. */
export class TempFolder {
	readonly path = mkdtempSync(join(tmpdir(), "conversations-"));

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
		rmSync(this.path, { recursive: true, force: true });
	}
}
