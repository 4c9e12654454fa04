import { describe, expect, it } from "vitest";
import type { NewAuditEntry } from "../../src/store/access.ts";
import type { Store } from "../../src/store/store.ts";
import { accessKey } from "./conformance-access-keys.ts";
import { sample, start } from "./samples.ts";

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

		it("has an entry of each act that was done, and none of one that did nothing", async () => {
			const store = current();
			const { write } = store.tables;
			const of = <Argument>(argument: Argument, subject: string) => ({
				of: argument,
				audit: auditEntry(0n, { subject }),
			});
			const budget = {
				...{ id: "b", name: "monthly", owner: "", settings: new Uint8Array(), updates: 0n, events: 0n },
				...{ createdAt: start, createdBy: "admin" },
			};
			const move = { id: "b", settings: new Uint8Array([1]), updates: 1n, events: 2n };
			const at = start + 9n;
			const done = [
				await store.createAccessKey(of(accessKey("a"), "key")),
				await store.createAccessKey(of(accessKey("a"), "key again")),
				await store.revokeAccessKey(of({ name: "a", at }, "revoked")),
				await store.revokeAccessKey(of({ name: "a", at }, "revoked again")),
				await write.createBudget(of(budget, "budget")),
				await write.createBudget(of({ ...budget, id: "c" }, "budget again")),
				await write.changeBudget(of(move, "changed")),
				await write.changeBudget(of({ ...move, id: "none" }, "changed none")),
				await write.deleteBudget(of("b", "deleted")),
				await write.deleteBudget(of("b", "deleted again")),
				await write.changeEndpoint(of({ id: "none", state: "paused" }, "no endpoint")),
				await write.resumeEndpoint(of({ id: "none", position: undefined, at }, "no endpoint")),
				await write.deleteEndpoint(of("none", "no endpoint")),
				(await write.retryDelivery(of({ id: "none", delivery: "d", at }, "no endpoint"))) !== undefined,
				await store.removeRefusedPost(of(7n, "no post")),
			];
			expect(done).toEqual([...Array.from({ length: 10 }, (_, n) => n % 2 === 0), ...Array(5).fill(false)]);
			expect((await listed(store)).map(({ subject }) => subject).toReversed()).toEqual([
				...["key", "revoked", "budget", "changed", "deleted"],
			]);
		});

		it("is written in the transaction of its act, which is undone when it cannot be written", async () => {
			const store = current();
			// No column of either engine can hold it.
			const audit = auditEntry(2n ** 64n);
			await expect(store.createAccessKey({ of: accessKey("a"), audit })).rejects.toThrow();
			const update = sample();
			const { conversationId } = update;
			await store.append(update);
			const erasing = { conversationId, owner: undefined, erasedAt: start + 9n };
			await expect(store.erase({ ...erasing, audit })).rejects.toThrow();
			const assigned = { owner: "team-a", of: { ids: [conversationId] }, limit: 10 };
			await expect(store.assignOwner({ ...assigned, audit })).rejects.toThrow();
			expect(await store.listAccessKeys()).toEqual([]);
			expect((await store.getOwnership(conversationId))?.owner).toBeUndefined();
			expect(await listed(store)).toEqual([]);
			expect(await store.assignOwner({ ...assigned, audit: auditEntry(1n, { subject: "assigned" }) })).toBe(1);
			expect(await store.erase({ ...erasing, audit: auditEntry(2n, { subject: "erased" }) })).toBeDefined();
			expect(await store.erase({ ...erasing, audit: auditEntry(3n, { subject: "erased again" }) })).toBeUndefined();
			expect((await listed(store)).map(({ subject, details }) => [subject, details])).toEqual([
				["erased", "read"],
				["assigned", "1"],
			]);
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
