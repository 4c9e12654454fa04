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

/** The key of a service that was started without configured keys. */
export interface FirstKey {
	readonly entry: KeyEntry;
	/** The key itself, 32 random bytes in base64url; present only on the start that made it. */
	readonly plain?: string;
}

/**
 * Makes the service's own key on the first start and finds it again on later ones. Only the hash is kept, in
 * `<databasePath>.access-key` (mode 0600), so the caller must print `plain` at once, before anything else can fail:
 * nothing brings it back. Processes that start at the same time agree on one key, and one of them gets its plain form.
 *
 * @param databasePath path of the database file, which need not exist yet; its folder is made when missing
 * @throws {Error} when the file cannot be read or written, or holds no key; a damaged file is never replaced, for that
 *   would silently lock out the clients that hold the key
 */
export async function firstKey(databasePath: string): Promise<FirstKey> {
	const path = `${databasePath}.access-key`;
	const kept = await readEntry(path);
	if (kept !== undefined) {
		return { entry: kept };
	}
	await mkdir(dirname(path), { recursive: true });
	const plain = randomBytes(32).toString("base64url");
	const entry = makeEntry("default", defaultScopes, hashKey(plain));
	if (await writeEntry(path, entry)) {
		return { entry, plain };
	}
	const others = await readEntry(path);
	if (others === undefined) {
		throw new Error(`The access key file ${path} vanished while the service started`);
	}
	return { entry: others };
}

function makeEntry(name: string, scopes: Iterable<Scope>, hash: Uint8Array): KeyEntry {
	return Object.freeze({ name, scopes: new Set(scopes), hash });
}

async function readEntry(path: string): Promise<KeyEntry | undefined> {
	let text: string;
	try {
		text = await readFile(path, "utf8");
	} catch (error) {
		if (hasCode(error, "ENOENT")) {
			return undefined;
		}
		throw error;
	}
	const parsed = keyFile.safeParse(parseJson(text));
	if (!parsed.success) {
		throw new Error(`The access key file ${path} is damaged; restore it, or remove it to have a new key made`);
	}
	const { name, scopes, sha256 } = parsed.data;
	return makeEntry(name, scopes, Buffer.from(sha256, "hex"));
}

/** Writes the file whole or not at all; false when another process was first. */
async function writeEntry(path: string, { name, scopes, hash }: KeyEntry): Promise<boolean> {
	const temporary = `${path}.${process.pid}.${randomBytes(4).toString("hex")}`;
	const text = JSON.stringify({ name, scopes: [...scopes], sha256: Buffer.from(hash).toString("hex") });
	try {
		await using file = await open(temporary, "wx", 0o600);
		await file.writeFile(`${text}\n`);
		await file.sync();
		// A link, unlike a rename, fails when the name is taken, so of two processes only one prints a key.
		await link(temporary, path);
		return true;
	} catch (error) {
		if (hasCode(error, "EEXIST")) {
			return false;
		}
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
