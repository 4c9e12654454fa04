import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { FirstKey } from "../../src/access/first-key.ts";
import { hashKey, Keyring } from "../../src/access/keys.ts";

async function makeFolder(): Promise<string> {
	const folder = await mkdtemp(join(tmpdir(), "first-key-"));
	onTestFinished(() => rm(folder, { recursive: true }));
	return folder;
}

test("the first start creates a key and stores only its hash; later starts find it", async () => {
	const folder = join(await makeFolder(), "not", "there", "yet");
	const path = join(folder, "conversations.db");

	const first = await FirstKey.of(path);
	const plain = (await first.keep()) ?? "";
	expect(plain).toMatch(/^[A-Za-z0-9_-]{43}$/);
	expect(first.entry).toEqual({
		name: "default",
		scopes: new Set(["ingest", "read", "metrics"]),
		hash: hashKey(plain),
	});
	expect(new Keyring([first.entry]).authenticate(plain).name).toBe("default");

	expect(await readdir(folder)).toEqual(["conversations.db.access-key"]);
	expect((await stat(`${path}.access-key`)).mode & 0o777).toBe(0o600);
	expect(JSON.parse(await readFile(`${path}.access-key`, "utf8"))).toEqual({
		name: "default",
		scopes: ["ingest", "read", "metrics"],
		sha256: Buffer.from(hashKey(plain)).toString("hex"),
	});

	const later = await FirstKey.of(path);
	expect(later.entry).toEqual(first.entry);
	expect(await later.keep()).toBeUndefined();
});

test("a start that fails before it stores its key leaves no file", async () => {
	const folder = await makeFolder();
	await FirstKey.of(join(folder, "conversations.db"));
	expect(await readdir(folder)).toEqual([]);
});

test("of several concurrent starts one stores its key, and the others fail", async () => {
	const folder = await makeFolder();
	const path = join(folder, "conversations.db");
	const starts = await Promise.all(Array.from({ length: 8 }, () => FirstKey.of(path)));
	const outcomes = await Promise.allSettled(starts.map((start) => start.keep()));
	const [plain = "", ...others] = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? outcome.value : []));
	expect(others).toEqual([]);
	expect(outcomes.filter(({ status }) => status === "rejected")).toHaveLength(7);
	expect((await FirstKey.of(path)).entry.hash).toEqual(Buffer.from(hashKey(plain ?? "")));
	expect(await readdir(folder)).toEqual(["conversations.db.access-key"]);
});

test.each([
	"",
	"nonsense",
	"{}",
	'{"name":"default","scopes":[],"sha256":""}',
	`{"name":"default","scopes":["all"],"sha256":"${"0".repeat(64)}"}`,
])("a damaged key file (%j) is neither used nor replaced", async (text) => {
	const path = join(await makeFolder(), "conversations.db");
	await writeFile(`${path}.access-key`, text);
	await expect(FirstKey.of(path)).rejects.toThrow(
		new Error(
			`The access key file ${path}.access-key is damaged; restore it, or remove it so that the next start generates a new key`,
		),
	);
	expect(await readFile(`${path}.access-key`, "utf8")).toBe(text);
});

test("a folder that cannot be created is an error", async () => {
	const folder = await makeFolder();
	await writeFile(join(folder, "file"), "");
	await expect(FirstKey.of(join(folder, "file", "conversations.db"))).rejects.toMatchObject({ code: "ENOTDIR" });
});
