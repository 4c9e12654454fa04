import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";
import { withTables } from "../../scripts/docs/tables.ts";
import { ROOT } from "../support/start-command.ts";

const pages = globSync(["*.md", "docs/*.md"], { cwd: ROOT }).sort();
const textOf = (page: string) => readFileSync(join(ROOT, page), "utf8");

/** Returns the anchors of a page's headings, as GitHub makes them. */
function anchorsOf(page: string): Set<string> {
	const headings = textOf(page).matchAll(/^#+ (.*)$/gm);
	return new Set(
		Array.from(headings, ([, heading = ""]) =>
			heading
				.toLowerCase()
				.replaceAll(/[^\p{L}\p{N}\- _]/gu, "")
				.replaceAll(" ", "-"),
		),
	);
}

test.each(pages)("the tables of %s that follow from the code are up to date (npm run docs)", (page) => {
	expect(textOf(page)).toBe(withTables(textOf(page)));
});

test("a table that is written for the first time leaves the one behind it", () => {
	const [title, ...lines] = withTables("<!-- table: commands -->\n\n| other | table |\n").split("\n");
	expect([title, lines.slice(0, 3), lines.slice(-3)]).toEqual([
		"<!-- table: commands -->",
		["", "| command | what it does |", "| --- | --- |"],
		["", "| other | table |", ""],
	]);
});

test("the pages have all tables", () => {
	const tables = pages.flatMap((page) =>
		Array.from(textOf(page).matchAll(/^<!-- table: (\S+) -->$/gm), ([, name]) => name),
	);
	expect(tables.sort()).toEqual(["commands", "log", "requests", "variables"]);
});

test("each link to a file, a folder or a heading leads somewhere", () => {
	const broken = pages.flatMap((page) =>
		[...textOf(page).matchAll(/\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)/g)].flatMap(([link, path = "", anchor]) => {
			const target = path === "" ? page : relative(ROOT, join(ROOT, dirname(page), path));
			const isThere = existsSync(join(ROOT, target)) && (anchor === undefined || anchorsOf(target).has(anchor));
			return isThere ? [] : [`${page}: ${link}`];
		}),
	);
	expect(broken).toEqual([]);
});

test("no page is without a link to it", () => {
	const linked = new Set(
		pages.flatMap((page) =>
			Array.from(textOf(page).matchAll(/\]\(([^)#:]+\.md)/g), ([, path = ""]) => join(dirname(page), path)),
		),
	);
	expect(pages.filter((page) => page !== "README.md" && !linked.has(page))).toEqual([]);
});

test("no page of docs/ has more than 3,000 words", () => {
	const isLong = (page: string) => textOf(page).split(/\s+/).length > 3000;
	expect(pages.filter((page) => page.startsWith("docs/") && isLong(page))).toEqual([]);
});
