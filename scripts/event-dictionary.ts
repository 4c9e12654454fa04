import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Makes a dictionary with which the texts of events are compressed, from the events of the tests. They have the members
 * and values of an agent server, but no text of a person, and masks in place of secrets. Needs the program `zstd`.
 *
 *     node scripts/event-dictionary.ts 2
 *
 * makes version 2. A version that was used must stay as it is, because stored events need it.
 */

/** Size of a dictionary in bytes. */
const BYTES = 32 * 1024;

const version = Number(process.argv[2]);
if (!Number.isInteger(version) || version < 1)
	throw new Error("the argument must be the version of the new dictionary");
const fixtures = new URL("../test/fixtures/", import.meta.url);
const folder = mkdtempSync(join(tmpdir(), "events-"));
try {
	const files = events().map((event, index) => {
		const file = join(folder, `${index}.json`);
		writeFileSync(file, JSON.stringify(event));
		return file;
	});
	const target = new URL(`../src/store/events-${version}.zdict`, import.meta.url).pathname;
	// Ids up to 32,767 are reserved for published dictionaries: RFC 8878, section 6.2.
	const id = 32_768 + version;
	execFileSync("zstd", ["--train", ...files, `--maxdict=${BYTES}`, `--dictID=${id}`, "-o", target]);
} finally {
	rmSync(folder, { recursive: true });
}

/** Returns the events of the fixtures: of single batches, and of recorded sequences of posts. */
function events(): unknown[] {
	const read = (name: string) =>
		readdirSync(new URL(name, fixtures))
			.sort()
			.map((file) => readFileSync(new URL(`${name}/${file}`, fixtures), "utf8"));
	const batches = read("events").map((text): unknown => JSON.parse(text));
	const posts = read("sequences").flatMap((text) => text.split("\n").filter((line) => line !== ""));
	const bodies = posts.map((line): unknown => {
		const post: unknown = JSON.parse(line);
		return typeof post === "object" && post !== null && "body" in post ? post.body : undefined;
	});
	return [...batches, ...bodies].flatMap((batch) => (Array.isArray(batch) ? batch : []));
}
