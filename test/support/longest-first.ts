import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Folders whose files take longest, by how long: those that start the program again and again, and open databases. */
const LONGEST = ["/test/robustness/", "/test/e2e/", "/test/store/"];

/**
 * Starts the files that take longest first, so that no long file runs alone at the end. Vitest knows how long a file
 * takes only where it has run before, which it never has in a clean checkout; then it goes by the size of files.
 */
export class LongestFirst extends BaseSequencer {
	override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
		const sorted = await super.sort(files);
		return sorted.toSorted((a, b) => rank(a) - rank(b));
	}
}

function rank({ moduleId }: TestSpecification): number {
	const index = LONGEST.findIndex((folder) => moduleId.includes(folder));
	return index === -1 ? LONGEST.length : index;
}
