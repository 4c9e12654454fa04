import { describe, expect, it } from "vitest";
import type { AccessKeyRow } from "../../src/store/access.ts";
import type { Store } from "../../src/store/store.ts";
import { start } from "./samples.ts";

/** Returns a key with every column set, except those that are replaced. */
export function accessKey(name: string, replaced: Partial<AccessKeyRow> = {}): AccessKeyRow {
	return {
		name,
		sha256: Buffer.alloc(32, name),
		scopes: ["ingest", "read"],
		owner: "team-a",
		createdAt: start,
		createdBy: "admin",
		expiresAt: start + 5n,
		revokedAt: undefined,
		lastUsedAt: undefined,
		...replaced,
	};
}

/** Tests of the table of access keys. */
export function accessKeyConformance(current: () => Store, reopen: () => Promise<Store>): void {
	const listed = async (store: Store) =>
		(await store.listAccessKeys()).map((key) => ({ ...key, sha256: Buffer.from(key.sha256) }));

	describe("access keys", () => {
		it("are kept in the order of their names, also after the store was opened again", async () => {
			const store = current();
			expect(await store.listAccessKeys()).toEqual([]);
			const [upper, lower, plain] = [
				accessKey("B"),
				accessKey("a"),
				accessKey("c", { owner: "", expiresAt: undefined }),
			];
			for (const key of [plain, lower, upper]) expect(await store.createAccessKey(key)).toBe(true);
			expect(await listed(current())).toEqual([upper, lower, plain]);
			expect(await listed(await reopen())).toEqual([upper, lower, plain]);
		});

		it("have unique names: of several keys with a name one is stored, even when it is revoked", async () => {
			const store = current();
			const keys = Array.from({ length: 5 }, (_, n) => accessKey("same", { createdBy: `${n}` }));
			const created = await Promise.all(keys.map((key) => store.createAccessKey(key)));
			expect(created.filter(Boolean)).toHaveLength(1);
			const [kept] = keys.filter((_, n) => created[n]);
			await store.revokeAccessKey({ name: "same", at: start + 1n });
			expect(await store.createAccessKey(accessKey("same"))).toBe(false);
			expect(await listed(store)).toEqual([{ ...kept, revokedAt: start + 1n }]);
		});

		it("are revoked once; a name that is not known is left alone", async () => {
			const store = current();
			await store.createAccessKey(accessKey("a"));
			await store.createAccessKey(accessKey("b"));
			for (const at of [start + 3n, start + 1n, start + 9n]) await store.revokeAccessKey({ name: "a", at });
			await store.revokeAccessKey({ name: "unknown", at: start });
			expect(await listed(store)).toEqual([accessKey("a", { revokedAt: start + 3n }), accessKey("b")]);
		});

		it("keep the latest of their uses", async () => {
			const store = current();
			for (const name of ["a", "b", "c"]) await store.createAccessKey(accessKey(name));
			await store.touchAccessKeys([
				{ name: "b", at: start + 7n },
				{ name: "unknown", at: start },
				{ name: "a", at: start + 2n },
			]);
			await store.touchAccessKeys([{ name: "b", at: start + 1n }]);
			await store.touchAccessKeys([]);
			expect(await listed(store)).toEqual([
				accessKey("a", { lastUsedAt: start + 2n }),
				accessKey("b", { lastUsedAt: start + 7n }),
				accessKey("c"),
			]);
		});
	});
}
