import { randomBytes } from "node:crypto";
import { link, mkdir, open, readFile, unlink } from "node:fs/promises";
import { dirname } from "node:path";
import { z } from "zod";
import { defaultScopes, hashKey, type KeyEntry, type Scope, scopes } from "./keys.ts";

const keyFile = z.strictObject({
	name: z.string().min(1),
	scopes: z.array(z.enum(scopes)).min(1),
	sha256: z.string().regex(/^[0-9a-f]{64}$/),
});

/**
 * The access key of a service without configured keys. The first start generates it, later starts read it again. Only
 * {@link keep} stores a new key, so a start that fails before leaves no file. A new key can also read the metrics. The file `<databasePath>.access-key`
 * (mode 0600) has only the hash of the key.
 */
export class FirstKey {
	readonly entry: KeyEntry;
	readonly #path: string;
	/** The key, 32 random bytes in base64url; undefined when an earlier start generated it. */
	readonly #plain: string | undefined;

	private constructor(path: string, entry: KeyEntry, plain?: string) {
		this.#path = path;
		this.entry = entry;
		this.#plain = plain;
	}

	/**
	 * Reads the key, or generates one that is not stored yet.
	 *
	 * @param databasePath path of the database file, which need not exist yet
	 * @throws {Error} when the file cannot be read, or has no valid key. A damaged file is never replaced, because that
	 *   would silently lock out the clients that have the key
	 */
	static async of(databasePath: string): Promise<FirstKey> {
		const path = `${databasePath}.access-key`;
		const kept = await readEntry(path);
		if (kept !== undefined) return new FirstKey(path, kept);
		const plain = randomBytes(32).toString("base64url");
		return new FirstKey(path, makeEntry("default", [...defaultScopes, "metrics"], hashKey(plain)), plain);
	}

	/**
	 * Stores the hash of a new key. The caller must show the key at once, because it cannot be recovered later.
	 *
	 * @returns the key if it is new; otherwise undefined
	 * @throws {Error} when the file cannot be written, or another start has stored another key meanwhile
	 */
	async keep(): Promise<string | undefined> {
		if (this.#plain === undefined) return undefined;
		await mkdir(dirname(this.#path), { recursive: true });
		if (!(await writeEntry(this.#path, this.entry)))
			throw new Error(
				"Another process generated an access key at the same time; start the service again to use that key",
			);
		return this.#plain;
	}
}

function makeEntry(name: string, scopes: Iterable<Scope>, hash: Uint8Array): KeyEntry {
	return Object.freeze({ name, scopes: new Set(scopes), owner: undefined, hash });
}

async function readEntry(path: string): Promise<KeyEntry | undefined> {
	let text: string;
	try {
		text = await readFile(path, "utf8");
	} catch (error) {
		if (hasCode(error, "ENOENT")) return undefined;
		throw error;
	}
	const parsed = keyFile.safeParse(parseJson(text));
	if (!parsed.success) {
		throw new Error(
			`The access key file ${path} is damaged; restore it, or remove it so that the next start generates a new key`,
		);
	}
	const { name, scopes, sha256 } = parsed.data;
	return makeEntry(name, scopes, Buffer.from(sha256, "hex"));
}

/** Writes the file atomically. Returns false when another process has written it before. */
async function writeEntry(path: string, { name, scopes, hash }: KeyEntry): Promise<boolean> {
	const temporary = `${path}.${process.pid}.${randomBytes(4).toString("hex")}`;
	const text = JSON.stringify({ name, scopes: [...scopes], sha256: Buffer.from(hash).toString("hex") });
	try {
		await using file = await open(temporary, "wx", 0o600);
		await file.writeFile(`${text}\n`);
		await file.sync();
		// Unlike a rename, a link fails when the file exists, so only one of two processes shows a key.
		await link(temporary, path);
		return true;
	} catch (error) {
		if (hasCode(error, "EEXIST")) return false;
		throw error;
	} finally {
		await unlink(temporary).catch(() => undefined);
	}
}

function parseJson(text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

function hasCode(error: unknown, code: string): boolean {
	return error instanceof Error && "code" in error && error.code === code;
}
