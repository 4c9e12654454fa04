import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

/** What CONTRIBUTING.md and docs/architecture.md say of files. */

const ROOT = join(import.meta.dirname, "../..");
const contributing = readFileSync(join(ROOT, "CONTRIBUTING.md"), "utf8");

/** Returns the paths in a text. Those with a placeholder, such as `<subject>`, are left out. */
function pathsIn(text: string): string[] {
	return [...text.matchAll(/`((?:src|test|proto|bench|deploy|scripts|console|clients|docs)\/[^`\s<*]*)`/g)].flatMap(
		([, path]) => path ?? [],
	);
}

/** Returns the paths of a section of CONTRIBUTING.md that match. */
function listed(title: string, pattern: RegExp): string[] {
	const [, section] = contributing.split(`\n### ${title}\n`);
	if (section === undefined) throw new Error(`there is no section ${title}`);
	const [text = ""] = section.split("\n### ");
	return [...new Set(pathsIn(text).filter((path) => pattern.test(path)))].sort();
}

/** Returns the files of a folder that name something. */
function naming(pattern: RegExp, ...globs: string[]): string[] {
	return globSync(globs, { cwd: ROOT })
		.filter((path) => pattern.test(readFileSync(join(ROOT, path), "utf8")))
		.sort();
}

test.each(["CONTRIBUTING.md", "docs/architecture.md"])("each file that %s names is there", (page) => {
	const paths = pathsIn(readFileSync(join(ROOT, page), "utf8"));
	expect(paths.length).toBeGreaterThan(10);
	expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
});

test("the list of files for a filter is that of the filter has_error", () => {
	expect(listed("A filter of lists", /^(src\/(conversations|store)|proto)\//)).toEqual(
		[
			...naming(/\b(has_error|hasError)\b/, "src/{conversations,store}/**/*.ts", "proto/**/*.proto"),
			// For a new kind of condition, and for a value that the summary lacks.
			"src/store/condition.ts",
		].sort(),
	);
});

test("the list of files for a view is that of the view of usage", () => {
	const pattern = /\b(followUsage|resetUsage|keepUsage)\b|"usage"|^\t+usage_ledger: \{ ofUsage/m;
	expect(listed("A view", /^src\/store\//)).toEqual(
		[
			...naming(pattern, "src/store/**/*.ts").filter((path) => path !== "src/store/views/usage.ts"),
			"src/store/tables.ts",
		]
			// Prunings and erasures call what keeps the usage.
			.filter((path) => !/^src\/store\/(sqlite\/writer|postgres\/(erase|pruning|owners))\.ts$/.test(path))
			.sort(),
	);
});

test("the list of files for an RPC is that of ListSenders", () => {
	const mounted = naming(/method\.listSenders\b/, "src/**/*.ts");
	const section = listed("An RPC", /^src\/(rpc|transports)\//);
	expect(mounted.filter((path) => !section.includes(path))).toEqual([]);
	expect(mounted).toHaveLength(2);
});
