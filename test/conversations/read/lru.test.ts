import { expect, test } from "vitest";
import { LruMap } from "../../../src/conversations/read/lru.ts";

/** Keys of those that are still there, without using them. */
function present(map: LruMap<string, number>, keys: string): string {
	return [...keys].filter((key) => map.get(key) !== undefined).join("");
}

test("what was not used for longest goes when the weight is too much", () => {
	const map = new LruMap<string, number>(3);
	map.set("a", 1, 1);
	map.set("b", 2, 1);
	map.set("c", 3, 1);
	expect(map.get("a")).toBe(1);
	map.set("d", 4, 2);
	expect(present(map, "abcd")).toBe("ad");
});

test("an entry that is set again weighs what it weighs now", () => {
	const map = new LruMap<string, number>(3);
	map.set("a", 1, 3);
	map.set("a", 2, 1);
	map.set("b", 3, 2);
	expect([map.get("a"), map.get("b")]).toEqual([2, 3]);
});

test("the last entry stays even if it is too heavy alone, until the next one", () => {
	const map = new LruMap<string, number>(3);
	map.set("a", 1, 1);
	map.set("b", 2, 100);
	expect(present(map, "ab")).toBe("b");
	map.set("c", 3, 1);
	expect(present(map, "abc")).toBe("c");
});

test("a deleted entry frees its weight", () => {
	const map = new LruMap<string, number>(2);
	map.set("a", 1, 1);
	map.set("b", 2, 1);
	map.delete("a");
	map.delete("a");
	map.set("c", 3, 1);
	expect(present(map, "abc")).toBe("bc");
});
