import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { COMMAND, grantOf, SERVICE } from "../../src/access/access-keys.ts";
import { hashKey, microseconds, type Principal, type Scope, scopes } from "../../src/access/keys.ts";
import { ServiceError } from "../../src/errors.ts";
import { KeyTable } from "./key-table.ts";

function principal(owner: string | undefined, ...granted: readonly Scope[]): Principal {
	return { name: `of ${owner ?? "all"}`, scopes: new Set(granted), owner };
}

const asked = (name: string, replaced: object = {}) => ({
	name,
	scopes: [],
	owner: "",
	expiresAt: undefined,
	...replaced,
});

async function open() {
	const keys = await KeyTable.open();
	const certificates = [principal("team-a", "read"), principal(undefined, "ingest")].map((key, n) => ({
		...key,
		name: `configured-${n}`,
	}));
	return { keys, access: await keys.opened({ certificates }) };
}

test("a caller makes keys with scopes that it holds, for its own owner, and no service-wide key for an owner", () => {
	const owners = fc.constantFrom(undefined, "team-a", "team-b");
	const caller = fc.record({ name: fc.constant("caller"), scopes: fc.subarray([...scopes]), owner: owners });
	const wanted = fc.record({ scopes: fc.subarray([...scopes]), owner: fc.constantFrom("", "team-a", "team-b") });
	fc.assert(
		fc.property(caller, wanted, ({ scopes: held, ...rest }, wish) => {
			const wishedScopes: readonly Scope[] = wish.scopes.length === 0 ? ["ingest", "read"] : wish.scopes;
			const owner = wish.owner === "" ? (rest.owner ?? "") : wish.owner;
			const isAllowed =
				wishedScopes.every((scope) => held.includes(scope)) &&
				(rest.owner === undefined || owner === rest.owner) &&
				(owner === "" || !wishedScopes.includes("metrics"));
			const make = () => grantOf(wish, { ...rest, scopes: new Set(held) });
			if (isAllowed) expect(make()).toEqual({ scopes: scopes.filter((scope) => wishedScopes.includes(scope)), owner });
			else expect(make).toThrow(expect.objectContaining({ kind: "permission_denied", caller: "caller" }));
		}),
	);
});

describe("AccessKeys", () => {
	test("creates a key that works, is shown once, stored as its hash and logged with its caller", async () => {
		const { keys, access } = await open();
		await using _ = keys;
		const expiresAt = microseconds(Date.now() + 90 * 86_400_000);
		const wish = { scopes: ["read", "ingest", "read"], owner: "team-a", expiresAt };
		const { key, row } = await access.create(asked("agent", wish), principal(undefined, ...scopes));
		expect(key).toMatch(/^[A-Za-z0-9_-]{43}$/);
		expect(row).toMatchObject({
			name: "agent",
			sha256: hashKey(key),
			scopes: ["ingest", "read"],
			owner: "team-a",
			createdBy: "of all",
			expiresAt,
		});
		expect(await keys.table.listAccessKeys()).toEqual([{ ...row, sha256: new Uint8Array(row.sha256) }]);
		expect(access.keyring.authenticate(key)).toMatchObject({ name: "agent", owner: "team-a" });
		expect(keys.lines).toEqual([
			["access_key_created", { name: "agent", scopes: row.scopes, owner: "team-a", caller: "of all" }],
		]);
		const entry = { number: 1n, at: expect.any(BigInt), action: "key.created", caller: "of all", owner: "" };
		expect(await keys.audit()).toEqual([{ ...entry, subject: "agent", details: "ingest+read" }]);
	});

	test.each([
		["", "name must be 1 to 64 letters, digits, dots, dashes or underscores", {}],
		["a b", "name must be 1 to 64 letters, digits, dots, dashes or underscores", {}],
		["a".repeat(65), "name must be 1 to 64 letters, digits, dots, dashes or underscores", {}],
		[COMMAND.name, "name is reserved", {}],
		[SERVICE.name, "name is reserved", {}],
		[
			"a",
			"scopes has one that is not ingest, read, secrets, metrics, keys, erase, forward, pause, score",
			{ scopes: ["read", "write"] },
		],
		["a", "owner must be 1 to 64 letters, digits, dots, dashes or underscores", { owner: "team a" }],
		["a", "expires_at must be in the future", { expiresAt: microseconds(Date.now() - 1) }],
	])("refuses a key %j: %s", async (name, message, replaced) => {
		const { keys, access } = await open();
		await using _ = keys;
		const made = access.create(asked(name, replaced), COMMAND);
		await expect(made).rejects.toThrow(new ServiceError("invalid_argument", message));
		expect(await keys.table.listAccessKeys()).toEqual([]);
		expect(keys.lines).toEqual([]);
	});

	test("gives a name to one key only, also when that is revoked or of the configuration", async () => {
		const { keys, access } = await open();
		await using _ = keys;
		await access.create(asked("a"), COMMAND);
		await access.revoke("a", COMMAND);
		for (const name of ["a", "configured-0"])
			await expect(access.create(asked(name), COMMAND)).rejects.toThrow(
				new ServiceError("already_exists", `There is an access key with the name "${name}"`),
			);
	});

	test("lists and revokes for a caller with an owner that owner's keys only; others are unknown to it", async () => {
		const { keys, access } = await open();
		await using _ = keys;
		for (const [name, owner] of [
			["b", "team-b"],
			["all", ""],
			["a", "team-a"],
		] as const)
			await access.create(asked(name, { owner }), COMMAND);
		const namesOf = (caller: Principal) => access.list(caller).map(({ name, configured }) => [name, configured]);
		expect(namesOf(COMMAND)).toEqual([
			["a", false],
			["all", false],
			["b", false],
			["configured-0", true],
			["configured-1", true],
		]);
		const ofTeam = principal("team-a", "keys");
		expect(namesOf(ofTeam)).toEqual([
			["a", false],
			["configured-0", true],
		]);
		const unknown = new ServiceError("not_found", "There is no such access key");
		for (const name of ["b", "all", "configured-1", "nobody"])
			await expect(access.revoke(name, ofTeam)).rejects.toThrow(unknown);
		const fixed = "The access key is set in the configuration; remove it there";
		await expect(access.revoke("configured-0", ofTeam)).rejects.toThrow(new ServiceError("failed_precondition", fixed));
		const lines = keys.lines.length;
		const revoked = await access.revoke("a", ofTeam);
		expect(revoked.revokedAt).toBeDefined();
		expect(await access.revoke("a", COMMAND)).toEqual(revoked);
		// What is refused, or done already, leaves no entry.
		expect((await keys.audit()).map(({ action, subject }) => `${action} ${subject}`)).toEqual([
			...["key.revoked a", "key.created a", "key.created all", "key.created b"],
		]);
		expect(keys.lines.slice(lines)).toEqual([["access_key_revoked", { name: "a", caller: "of team-a" }]]);
	});

	test("makes the key of the first start only for a store without keys", async () => {
		const { keys, access } = await open();
		await using _ = keys;
		const first = await access.createFirst(false);
		expect(first?.consoleKey).toBeUndefined();
		expect(access.keyring.authenticate(first?.key)).toMatchObject({
			name: "default",
			scopes: new Set(["ingest", "read", "score", "metrics", "keys"]),
			owner: undefined,
		});
		await access.revoke("default", COMMAND);
		expect(await access.createFirst(true)).toBeUndefined();
	});

	test("makes a key for the console, which can only read and ends after a day", async () => {
		const { keys, access } = await open();
		await using _ = keys;
		const before = Date.now();
		const first = await access.createFirst(true);
		const after = Date.now();
		expect(access.keyring.authenticate(first?.consoleKey)).toMatchObject({
			name: "console",
			scopes: new Set(["read"]),
		});
		const row = (await keys.table.listAccessKeys()).find(({ name }) => name === "console");
		const lifetime = 24 * 60 * 60 * 1000;
		expect(Number(row?.expiresAt) / 1000).toBeGreaterThanOrEqual(before + lifetime);
		expect(Number(row?.expiresAt) / 1000).toBeLessThanOrEqual(after + lifetime);
	});
});
