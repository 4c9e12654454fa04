import { expect, test } from "vitest";
import { entryOf } from "../../src/access/audit.ts";
import { hashKey } from "../../src/access/keys.ts";
import { EXPIRY_NOTICE, microseconds, SERVICE } from "../../src/access/stored-keys.ts";
import { ServiceError } from "../../src/errors.ts";
import type { AccessKeyRow } from "../../src/store/access-keys.ts";
import { accessKey } from "../store/conformance-access-keys.ts";
import { KeyTable } from "./key-table.ts";

const unauthenticated = (message: string) => new ServiceError("unauthenticated", message);

const ENTRY = entryOf("key.created", { name: "test" }, "a");
const audited = (of: AccessKeyRow) => ({ of, audit: ENTRY });

/** Returns a key whose text is its name and which does not expire unless it is told to. */
const named = (name: string, expiresIn?: number) =>
	accessKey(name, {
		sha256: hashKey(name),
		createdAt: microseconds(Date.now() - 30 * 86_400_000),
		expiresAt: expiresIn === undefined ? undefined : microseconds(Date.now() + expiresIn),
	});

test("a stored key authenticates from its creation until it is revoked, which ends its holder's watches", async () => {
	await using keys = await KeyTable.open();
	const stored = await keys.stored({ configured: [{ ...named("fixed"), scopes: new Set(), hash: hashKey("fixed") }] });
	const { keyring } = stored;
	expect(() => keyring.authenticate("a")).toThrow(unauthenticated("The access key is not known"));
	expect(await stored.create(audited(named("a")))).toBe(true);
	expect(await stored.create(audited({ ...named("a"), sha256: hashKey("another") }))).toBe(false);
	expect(await stored.create(audited(named("b")))).toBe(true);
	const [a, b] = [keyring.authenticate("a"), keyring.authenticate("b")];
	expect(a).toMatchObject({ name: "a", scopes: new Set(["ingest", "read"]), owner: "team-a" });
	await stored.revoke("a", ENTRY);
	expect([a.ended?.aborted, b.ended?.aborted]).toEqual([true, false]);
	expect(() => keyring.authenticate("a")).toThrow(unauthenticated("The access key is not known"));
	// The holder stays the same, so that its rate limit goes on.
	expect(keyring.authenticate("b")).toBe(b);
	expect(keyring.authenticate("fixed")).toMatchObject({ name: "fixed" });
	expect(stored.valid.map(({ name }) => name)).toEqual(["b"]);
});

test("changes of another process are taken over, and end watches", async () => {
	await using keys = await KeyTable.open();
	const [one, other] = [await keys.stored(), await keys.stored({ refreshInterval: 5 })];
	await one.create(audited(named("a")));
	await expect.poll(() => other.all.length).toBe(1);
	const { ended } = other.keyring.authenticate("a");
	await one.revoke("a", ENTRY);
	await expect.poll(() => ended?.aborted).toBe(true);
});

test("a key expires by itself, and ends its holder's watches", async () => {
	await using keys = await KeyTable.open();
	const stored = await keys.stored();
	// Long enough to be stored and used on a busy machine.
	await stored.create(audited(named("short", 5_000)));
	const { ended } = stored.keyring.authenticate("short");
	expect(ended?.aborted).toBe(false);
	await expect.poll(() => ended?.aborted).toBe(true);
	expect(() => stored.keyring.authenticate("short")).toThrow(unauthenticated("The access key has expired"));
	expect(stored.valid).toEqual([]);
	expect(stored.expiring).toBe(0);
});

test("the last use is listed at once, saved in batches and at the end, and seen by other processes", async () => {
	await using keys = await KeyTable.open();
	const before = microseconds(Date.now());
	const used = async () =>
		(await keys.table.list()).map(({ name, lastUsedAt }) => [name, (lastUsedAt ?? -1n) >= before]);
	await keys.table.create(named("a"));
	await keys.table.create(named("b"));
	const [often, atEnd] = [await keys.stored({ flushInterval: 5 }), await keys.stored()];
	often.keyring.authenticate("a");
	await expect.poll(used).toEqual([
		["a", true],
		["b", false],
	]);
	atEnd.keyring.authenticate("b");
	expect(atEnd.all.find(({ name }) => name === "b")?.lastUsedAt).toBeGreaterThanOrEqual(before);
	await atEnd[Symbol.asyncDispose]();
	expect(await used()).toEqual([
		["a", true],
		["b", true],
	]);
	expect(keys.lines).toEqual([]);
});

test("a key that expires within a week is counted, and reported once a day", async () => {
	await using keys = await KeyTable.open();
	const stored = await keys.stored();
	await stored.create(audited(named("later", EXPIRY_NOTICE + 60_000)));
	await stored.create(audited(named("never")));
	// Nobody needs another key when that of the first start for the console ends.
	await stored.create(audited({ ...named("console", 3_600_000), createdBy: SERVICE }));
	expect(keys.lines).toEqual([]);
	expect(stored.expiring).toBe(0);
	const soon = { ...named("soon", 3_600_000), createdAt: microseconds(Date.now()) };
	await stored.create(audited(soon));
	await stored.refresh();
	const end = new Date(Number((soon.expiresAt ?? 0n) / 1000n));
	expect(keys.lines).toEqual([["expires", "soon", end]]);
	expect(stored.expiring).toBe(1);
	await stored.revoke("soon", ENTRY);
	expect(stored.expiring).toBe(0);
});

test("a failure to read or to write the table is reported, and the keys stay", async () => {
	await using keys = await KeyTable.open();
	await keys.table.create(named("a"));
	const failure = new Error("away");
	let works = true;
	const table = {
		...keys.table,
		list: () => (works ? keys.table.list() : Promise.reject(failure)),
		touch: (uses: Parameters<typeof keys.table.touch>[0]) => (works ? keys.table.touch(uses) : Promise.reject(failure)),
	};
	const { StoredKeys } = await import("../../src/access/stored-keys.ts");
	await using stored = await StoredKeys.open(table, {
		configured: [],
		log: keys.log,
		refreshInterval: 5,
		flushInterval: 5,
	});
	works = false;
	stored.keyring.authenticate("a");
	await expect.poll(() => keys.lines.length).toBeGreaterThan(2);
	expect(keys.lines[0]).toEqual(["failed", "access keys", failure]);
	expect(stored.keyring.authenticate("a").name).toBe("a");
	works = true;
	// The use that could not be written is written later.
	await expect.poll(async () => (await keys.table.list())[0]?.lastUsedAt).toBeDefined();
});
