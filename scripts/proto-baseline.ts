import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

/** An earlier state of the .proto files. */
export interface ProtoBaseline {
	readonly commit: string;
	/** Folder with the module as it was in that commit. */
	readonly folder: string;
}

/**
 * Finds the state that the .proto files of the work tree must stay compatible with, by one rule: of the commits that
 * lead to HEAD, HEAD included, the newest one whose .proto files differ from those of the work tree. With changes that
 * are not committed that is HEAD; after a commit that changes them, the one before it.
 *
 * @param root folder of the repository
 * @param folder where the earlier state is to be written
 * @returns undefined when no commit at hand has another state, as at the very first or in a shallow clone
 */
export async function protoBaseline(root: string, folder: string): Promise<ProtoBaseline | undefined> {
	for (const commit of await commitsWithProtos(root)) {
		if (!(await differs(root, commit))) continue;
		await mkdir(folder, { recursive: true });
		const archive = `${folder}/baseline.tar`;
		await run("git", ["archive", "--format=tar", `--output=${archive}`, commit, "buf.yaml", "proto"], { cwd: root });
		await run("tar", ["-xf", archive, "-C", folder]);
		return { commit, folder };
	}
	return undefined;
}

/** Commits that changed .proto files, newest first; none outside of a repository. */
async function commitsWithProtos(root: string): Promise<string[]> {
	try {
		const { stdout } = await run("git", ["rev-list", "--first-parent", "HEAD", "--", "proto/*.proto"], { cwd: root });
		return stdout.split("\n").filter((line) => line !== "");
	} catch {
		return [];
	}
}

async function differs(root: string, commit: string): Promise<boolean> {
	try {
		await run("git", ["diff", "--quiet", commit, "--", "proto/*.proto"], { cwd: root });
		return false;
	} catch (error) {
		if (error instanceof Error && "code" in error && error.code === 1) return true;
		throw error;
	}
}
