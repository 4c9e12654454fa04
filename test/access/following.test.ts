import { expect, test } from "vitest";
import { AccessKeys, COMMAND, EXPIRY_NOTICE, SERVICE } from "../../src/access/access-keys.ts";
import { hashKey, microseconds } from "../../src/access/keys.ts";
import { ServiceError } from "../../src/errors.ts";
import type { AccessKeyRow } from "../../src/store/access.ts";
import { accessKey } from "../store/conformance-access-keys.ts";
import { KeyTable } from "./key-table.ts";

const unauthenticated = (message: string) => new ServiceError("unauthenticated", message);

/** Returns a key whose text is its name and which does not expire unless it is told to. */
const named = (name: string, expiresIn?: number) =>
	accessKey(name, {
		sha256: hashKey(name),
		createdAt: microseconds(Date.now() - 30 * 86_400_000),
		expiresAt: expiresIn === undefined ? undefined : microseconds(Date.now() + expiresIn),
	});

/** Stores a key as another process does, and lets access keys follow. */
const store = async (keys: KeyTable, access: AccessKeys, row: AccessKeyRow) => {
	await keys.table.createAccessKey(row);
	await access.refresh();
};

test("a stored key authenticates from its creation until it is revoked, which ends its holder's watches", async () => {
	await using keys = await KeyTable.open();
	const configured = [{ ...named("fixed"), scopes: new Set<never>(), hash: hashKey("fixed") }];
	const [access, other] = [await keys.opened({ configured }), await keys.opened()];
	const { keyring } = access;
	expect(() => keyring.authenticate("a")).toThrow(unauthenticated("The access key is not known"));
	expect([access.hasValid, other.hasValid]).toEqual([true, false]);
	await store(keys, access, named("a"));
	await store(keys, access, named("b"));
	const [a, b] = [keyring.authenticate("a"), keyring.authenticate("b")];
	expect(a).toMatchObject({ name: "a", scopes: new Set(["ingest", "read"]), owner: "team-a" });
	await access.revoke("a", COMMAND);
	expect([a.ended?.aborted, b.ended?.aborted]).toEqual([true, false]);
	expect([keyring.knows("a"), keyring.knows("b"), keyring.knows("fixed")]).toEqual([false, true, true]);
	expect(() => keyring.authenticate("a")).toThrow(unauthenticated("The access key is not known"));
	// The holder stays the same, so that its rate limit goes on.
	expect(keyring.authenticate("b")).toBe(b);
	expect(keyring.authenticate("fixed")).toMatchObject({ name: "fixed" });
	await other.refresh();
	expect(other.hasValid).toBe(true);
});

test("changes of another process are taken over, and end watches", async () => {
	await using keys = await KeyTable.open();
	const [one, other] = [await keys.opened(), await keys.opened({ refreshInterval: 5 })];
	await store(keys, one, named("a"));
	await expect.poll(() => other.list(COMMAND).length).toBe(1);
	const { ended } = other.keyring.authenticate("a");
	await one.revoke("a", COMMAND);
	await expect.poll(() => ended?.aborted).toBe(true);
});

test("a key expires by itself, and ends its holder's watches", async () => {
	await using keys = await KeyTable.open();
	const access = await keys.opened();
	// Long enough to be stored and used on a busy machine.
	await store(keys, access, named("short", 5_000));
	const { ended } = access.keyring.authenticate("short");
	expect(ended?.aborted).toBe(false);
	await expect.poll(() => ended?.aborted).toBe(true);
	expect(() => access.keyring.authenticate("short")).toThrow(unauthenticated("The access key has expired"));
	expect(access.hasValid).toBe(false);
	expect(access.expiring).toBe(0);
});

test("the last use is listed at once, saved in batches and at the end, and seen by other processes", async () => {
	await using keys = await KeyTable.open();
	const before = microseconds(Date.now());
	const used = async () =>
		(await keys.table.listAccessKeys()).map(({ name, lastUsedAt }) => [name, (lastUsedAt ?? -1n) >= before]);
	await keys.table.createAccessKey(named("a"));
	await keys.table.createAccessKey(named("b"));
	const [often, atEnd] = [await keys.opened({ flushInterval: 5 }), await keys.opened()];
	often.keyring.authenticate("a");
	await expect.poll(used).toEqual([
		["a", true],
		["b", false],
	]);
	atEnd.keyring.authenticate("b");
	const uses = atEnd.list(COMMAND).map((key) => (key.configured ? -1n : (key.lastUsedAt ?? -1n)));
	expect(uses[1]).toBeGreaterThanOrEqual(before);
	await atEnd[Symbol.asyncDispose]();
	expect(await used()).toEqual([
		["a", true],
		["b", true],
	]);
	expect(keys.lines).toEqual([]);
});

test("a key that expires within a week is counted", async () => {
	await using keys = await KeyTable.open();
	const access = await keys.opened();
	await store(keys, access, named("later", EXPIRY_NOTICE + 60_000));
	await store(keys, access, named("never"));
	// Nobody needs another key when that of the first start for the console ends.
	await store(keys, access, { ...named("console", 3_600_000), createdBy: SERVICE.name });
	expect(keys.lines).toEqual([]);
	expect(access.expiring).toBe(0);
	const soon = { ...named("soon", 3_600_000), createdAt: microseconds(Date.now()) };
	await store(keys, access, soon);
	await access.refresh();
	expect(access.expiring).toBe(1);
	await access.revoke("soon", COMMAND);
	expect(access.expiring).toBe(0);
});

test("a failure to read or to write the table is reported, and the keys stay", async () => {
	await using keys = await KeyTable.open();
	await keys.table.createAccessKey(named("a"));
	const failure = new Error("away");
	let works = true;
	const table = {
		...keys.table,
		listAccessKeys: () => (works ? keys.table.listAccessKeys() : Promise.reject(failure)),
		touchAccessKeys: (uses: Parameters<typeof keys.table.touchAccessKeys>[0]) =>
			works ? keys.table.touchAccessKeys(uses) : Promise.reject(failure),
	};
	await using access = await AccessKeys.open(table, {
		configured: [],
		log: keys.log,
		refreshInterval: 5,
		flushInterval: 5,
	});
	works = false;
	access.keyring.authenticate("a");
	await expect.poll(() => keys.lines.length).toBeGreaterThan(2);
	expect(keys.lines[0]).toEqual(["failed", "access keys", failure]);
	expect(access.keyring.authenticate("a").name).toBe("a");
	works = true;
	// The use that could not be written is written later.
	await expect.poll(async () => (await keys.table.listAccessKeys())[0]?.lastUsedAt).toBeDefined();
});
