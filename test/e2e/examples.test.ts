import { execFile } from "node:child_process";
import { globSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { ROOT } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";

/** The pages with examples that are run, in this order: later ones read what earlier ones posted. */
const PAGES = [
	"README.md",
	"docs/first-day.md",
	"docs/bad-night.md",
	"docs/api.md",
	"docs/configuration.md",
	"docs/operations.md",
	"docs/monitoring.md",
	"docs/completeness.md",
	"docs/forwarding.md",
	"docs/budgets.md",
	"docs/trajectories.md",
	"docs/mcp.md",
	"docs/upgrade.md",
];

/** An error response fails, and the end of a stream by `--max-time` does not. */
const PRELUDE = `set -euo pipefail
curl() { command curl --fail-with-body "$@" || [ $? = 28 ]; }
`;

/** Returns the examples of a page that are run: the blocks below a line `<!-- run -->`. */
function examplesOf(page: string): string[] {
	const text = readFileSync(join(ROOT, page), "utf8");
	return Array.from(text.matchAll(/^( *)<!-- run -->\n\n\1```sh\n(.*?)^\1```$/gms), ([, , block = ""]) => block);
}

test("the list of pages is complete, and each of their marks is above a block", () => {
	const marks = (page: string) => readFileSync(join(ROOT, page), "utf8").match(/^ *<!-- run -->$/gm)?.length ?? 0;
	const marked = globSync(["*.md", "docs/*.md"], { cwd: ROOT }).filter((page) => marks(page) > 0);
	expect(marked.sort()).toEqual(PAGES.toSorted());
	expect(PAGES.map((page) => examplesOf(page).length)).toEqual(PAGES.map(marks));
});

test("the examples of the pages run as they stand, but for the addresses", async ({ signal }) => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const env = {
		...testEnvironment(database),
		ACCESS_KEYS: `default:${KEY}:ingest+read+metrics+keys+forward`,
		ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
	};
	await using service = await ServiceProcess.start(database, env);
	const run = async (page: string): Promise<{ page: string; code: number; output: string }> => {
		// A folder of its own, in which npm finds the program, and commands leave their files.
		const cwd = folder.file(page.replaceAll("/", "-"));
		mkdirSync(cwd);
		for (const name of ["package.json", "node_modules", "dist", "test"]) symlinkSync(join(ROOT, name), join(cwd, name));
		const script = examplesOf(page)
			.join("\n")
			.replaceAll("http://127.0.0.1:8080", service.http)
			.replaceAll("127.0.0.1:50051", service.grpc);
		const variables = { PATH: process.env.PATH, HOME: process.env.HOME, ...env, KEY };
		return await new Promise((resolve, reject) => {
			const options = { cwd, env: variables, signal, maxBuffer: 2 ** 26 };
			execFile("bash", ["-c", PRELUDE + script], options, (error, stdout, stderr) => {
				if (error === null) resolve({ page, code: 0, output: "" });
				else if (typeof error.code === "number") resolve({ page, code: error.code, output: stdout + stderr });
				else reject(error);
			});
		});
	};
	for (const page of PAGES) expect(await run(page)).toEqual({ page, code: 0, output: "" });

	const list = await fetch(`${service.http}/api/v1/conversations`, { headers: { "X-Access-Token": KEY } });
	const ids = Array.from((await list.text()).matchAll(/"summary":\{"id":"([^"]*)"/g), ([, id]) => id);
	// The example of an erasure takes the first one of the README away.
	expect(ids.sort()).toEqual([
		"048c31eb-670a-4b4a-ad4b-afd97508c3e8",
		"7c9e6679-7425-40de-944b-e07fc1f90ae8",
		"7c9e6679-7425-40de-944b-e07fc1f90ae9",
	]);
});
