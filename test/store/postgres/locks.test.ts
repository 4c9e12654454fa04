import { expect, test } from "vitest";
import { lockConversations } from "../../../src/store/postgres/transaction.ts";

/** Returns the keys that the statement locks. */
const keysOf = (ids: readonly string[]) =>
	String(lockConversations(ids).values?.[0]).slice(1, -1).split(",").map(Number);
const hex = (number: number, digits: number) => number.toString(16).padStart(digits, "0");
/** Returns ids that differ in one place only, as UUIDs from the same time or machine may. */
const numbered = (id: (number: number) => string) => Array.from({ length: 100 }, (_, number) => id(number));

test.each([
	["first", numbered((n) => `${hex(n, 8)}-1c2d-71aa-8bcd-0123456789ab`)],
	["middle", numbered((n) => `019a1b2c-1c2d-7${hex(n, 3)}-8bcd-0123456789ab`)],
	["last", numbered((n) => `019a1b2c-1c2d-71aa-8bcd-${hex(n, 12)}`)],
])("conversations whose ids differ in the %s digits have different locks, taken in ascending order", (_, ids) => {
	const keys = keysOf(ids.toReversed());
	expect(new Set(keys).size).toBe(ids.length);
	expect(keys).toEqual(keys.toSorted((a, b) => a - b));
	for (const key of keys) expect(key | 0).toBe(key);
});
