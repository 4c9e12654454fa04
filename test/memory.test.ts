import fc from "fast-check";
import { expect, test } from "vitest";
import { compactAll } from "../src/memory.ts";

test("compactAll moves byte strings into one buffer without other data, unless they are in one already", () => {
	const bytes = fc.uint8Array({ maxLength: 8 });
	fc.assert(
		fc.property(fc.array(bytes, { minLength: 1, maxLength: 5 }), bytes, (parts, before) => {
			// Views of a larger buffer, such as the Buffer pool of Node.js.
			const pool = Buffer.concat([before, ...parts, before]);
			let end = before.byteLength;
			const views = parts.map(({ byteLength }) => {
				end += byteLength;
				return pool.subarray(end - byteLength, end);
			});
			const compacted = compactAll(views);
			expect(compacted.map((part) => [...part])).toEqual(parts.map((part) => [...part]));
			const size = parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
			const buffers = new Set(compacted.map(({ buffer }) => buffer));
			expect([...buffers].map(({ byteLength }) => byteLength)).toEqual([size]);
			expect(compactAll(compacted)).toBe(compacted);
		}),
	);
});
