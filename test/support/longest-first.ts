import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Folders with the slowest files, slowest first. These start the program repeatedly, show pages and open databases. */
const SLOWEST_FOLDERS = ["/test/robustness/", "/test/e2e/", "/test/console/", "/test/store/"];

/**
 * Starts the slowest files first, so that no slow file runs alone at the end. Vitest knows the duration of a file only
 * from an earlier run. In a clean checkout there is none, and Vitest sorts by file size.
 */
export class LongestFirst extends BaseSequencer {
	override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
		const sorted = await super.sort(files);
		return sorted.toSorted((a, b) => rank(a) - rank(b));
	}
}

function rank({ moduleId }: TestSpecification): number {
	const index = SLOWEST_FOLDERS.findIndex((folder) => moduleId.includes(folder));
	return index === -1 ? SLOWEST_FOLDERS.length : index;
}
