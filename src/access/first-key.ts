import { readFile, unlink } from "node:fs/promises";
import { z } from "zod";
import { scopes } from "./keys.ts";
import { microseconds, SERVICE, type StoredKeys } from "./stored-keys.ts";

const keyFile = z.strictObject({
	name: z.string().min(1),
	scopes: z.array(z.enum(scopes)).min(1),
	sha256: z.string().regex(/^[0-9a-f]{64}$/),
});

/**
 * Moves the key of an earlier release into the store. Such a release kept the hash of the key that its first start had
 * made in the file `<databasePath>.access-key`. The file is removed when the key is on disk in the store.
 *
 * @throws {Error} when the file cannot be read or removed, or has no valid key. A damaged file is never removed, because
 *   that would silently lock out the clients that have the key
 */
export async function takeOverKeyFile(databasePath: string, stored: Pick<StoredKeys, "all" | "create">): Promise<void> {
	const path = `${databasePath}.access-key`;
	const text = await readFile(path, "utf8").catch((error: unknown) => {
		if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
		throw error;
	});
	if (text === undefined) return;
	const parsed = keyFile.safeParse(parseJson(text));
	if (!parsed.success)
		throw new Error(
			`The access key file ${path} is damaged; restore it, or remove it so that the next start generates a new key`,
		);
	const { name, scopes: granted, sha256 } = parsed.data;
	const hash = Buffer.from(sha256, "hex");
	await stored.create({
		name,
		sha256: hash,
		scopes: granted,
		owner: "",
		createdAt: microseconds(Date.now()),
		createdBy: SERVICE,
		expiresAt: undefined,
		revokedAt: undefined,
		lastUsedAt: undefined,
	});
	// Another key with the name leaves the file in its place, so that nothing is lost.
	if (stored.all.some((key) => key.name === name && hash.equals(key.sha256))) await unlink(path);
}

function parseJson(text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}
