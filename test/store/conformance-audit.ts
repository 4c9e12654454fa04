import { describe, expect, it } from "vitest";
import type { NewAuditEntry } from "../../src/store/audit.ts";
import type { Store } from "../../src/store/store.ts";
import { start } from "./samples.ts";

/** Returns an entry with every column set, except those that are replaced. */
export function auditEntry(n: bigint, replaced: Partial<NewAuditEntry> = {}): NewAuditEntry {
	return {
		...{ at: start + n, action: "key.created", caller: "admin", owner: "team-a", subject: `key-${n}`, details: "read" },
		...replaced,
	};
}

/** Tests of the table of the audit. */
export function auditConformance(current: () => Store, reopen: () => Promise<Store>): void {
	const listed = (store: Store, query: object = {}) =>
		store.tables.read.listAudit({ owner: undefined, before: undefined, limit: 10, ...query });

	describe("the audit", () => {
		it("numbers its entries in their order, lists the newest first, in pages and by owner, also after a restart", async () => {
			const entries = [1n, 2n, 3n, 4n].map((n) => auditEntry(n, n % 2n === 0n ? { owner: "" } : {}));
			for (const entry of entries) await current().tables.write.addAudit(entry);
			const numbered = entries.map((entry, n) => ({ ...entry, number: BigInt(n + 1) })).toReversed();
			expect(await listed(await reopen())).toEqual(numbered);
			expect(await listed(current(), { limit: 2 })).toEqual(numbered.slice(0, 2));
			expect(await listed(current(), { limit: 2, before: 3n })).toEqual(numbered.slice(2));
			expect(await listed(current(), { owner: "team-a" })).toEqual(numbered.filter(({ owner }) => owner !== ""));
			expect(await listed(current(), { owner: "", before: 4n })).toEqual([numbered[2]]);
		});

		it("is kept for 400 days, and so are notices", async () => {
			const { write, read } = current().tables;
			const later = start + 400n * 86_400n * 1_000_000n;
			const notice = (id: string, at: bigint) => write.addNotice({ id, conversationId: "", deliveries: [], at });
			for (const at of [start, start + 1n]) {
				await write.addAudit(auditEntry(0n, { at, subject: String(at) }));
				expect(await notice(String(at), at)).toBe(true);
			}
			await write.addAudit(auditEntry(0n, { at: later + 1n, subject: "later" }));
			await notice("later", later + 1n);
			expect((await listed(current())).map(({ subject, number }) => [subject, number])).toEqual([
				["later", 3n],
				[String(start + 1n), 2n],
			]);
			const kept = [String(start), String(start + 1n), "later"].map((id) => read.hasNotice(id));
			expect(await Promise.all(kept)).toEqual([false, true, true]);
		});

		it("gives entries that are added at the same time numbers without a gap", async () => {
			const { tables } = current();
			await Promise.all(Array.from({ length: 20 }, (_, n) => tables.write.addAudit(auditEntry(BigInt(n)))));
			const found = await listed(current(), { limit: 50 });
			expect(found.map(({ number }) => number)).toEqual(Array.from({ length: 20 }, (_, n) => BigInt(20 - n)));
			expect(new Set(found.map(({ subject }) => subject)).size).toBe(20);
		});
	});
}
