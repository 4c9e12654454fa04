import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { authorize, hashKey, Keyring, type Scope, scopes } from "../../src/access/keys.ts";
import { ServiceError } from "../../src/errors.ts";

function entry(name: string, key: string, ...granted: Scope[]) {
	return { name, scopes: new Set(granted), owner: undefined, hash: hashKey(key) };
}

const keyring = new Keyring([
	entry("sender", "key-1", "ingest"),
	entry("reader", "key-2", "read", "secrets"),
	entry("both", "key-3", "ingest", "read"),
]);

describe("Keyring", () => {
	test("returns the holder of each key with its scopes", () => {
		expect(keyring.authenticate("key-1")).toEqual({ name: "sender", scopes: new Set(["ingest"]) });
		expect(keyring.authenticate("key-2")).toEqual({ name: "reader", scopes: new Set(["read", "secrets"]) });
		expect(keyring.authenticate("key-3")).toEqual({ name: "both", scopes: new Set(["ingest", "read"]) });
	});

	test.each([undefined, ""])("refuses an absent key (%j) as missing", (presented) => {
		expect(() => keyring.authenticate(presented)).toThrow(
			new ServiceError("unauthenticated", "The access key is missing"),
		);
	});

	test("refuses every key if it is empty", () => {
		expect(() => new Keyring([]).authenticate("key-1")).toThrow(
			new ServiceError("unauthenticated", "The access key is not known"),
		);
	});

	test("refuses any other text as unknown, without repeating it", () => {
		const other = fc.oneof(
			fc.string({ minLength: 1 }),
			fc.constantFrom(
				"key-",
				"key-1 ",
				"KEY-1",
				"key-1,key-2",
				"sender:key-1",
				Buffer.from(hashKey("key-1")).toString("hex"),
			),
		);
		fc.assert(
			fc.property(
				other.filter((text) => !["key-1", "key-2", "key-3"].includes(text)),
				(presented) => {
					expect(() => keyring.authenticate(presented)).toThrow(
						new ServiceError("unauthenticated", "The access key is not known"),
					);
				},
			),
		);
	});
});

test("a principal is authorized for the scopes that it holds and for no other", () => {
	fc.assert(
		fc.property(fc.subarray([...scopes]), fc.constantFrom(...scopes), (held, needed) => {
			const pass = () => authorize({ name: "anyone", scopes: new Set(held), owner: undefined }, needed);
			if (held.includes(needed)) {
				expect(pass()).toBeUndefined();
			} else {
				const message = `The access key or client certificate lacks the scope "${needed}"`;
				expect(pass).toThrow(new ServiceError("permission_denied", message, { caller: "anyone" }));
			}
		}),
	);
});
