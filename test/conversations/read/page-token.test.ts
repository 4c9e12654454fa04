import fc from "fast-check";
import { expect, test } from "vitest";
import { readPageToken, writePageToken } from "../../../src/conversations/read/page.ts";
import { ServiceError } from "../../../src/errors.ts";

const REFUSED = new ServiceError("invalid_argument", "page_token is not valid for this list and filter");

const scopes = fc.record(
	{
		status: fc.string(),
		createdFrom: fc.bigInt(),
		tags: fc.dictionary(fc.string(), fc.string(), { maxKeys: 3 }),
	},
	{ requiredKeys: [] },
);
const positions = fc.bigInt({ min: 0n, max: 2n ** 63n - 1n });

test("a token is read as its position", () => {
	fc.assert(
		fc.property(scopes, positions, (scope, position) => {
			const token = writePageToken("list", scope, position);
			expect(token).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
			expect(readPageToken("list", scope, token)).toEqual([position]);
		}),
	);
});

test("a token does not depend on the process, so that every replica reads it whatever its access keys are", () => {
	const scope = { conditions: [{ kind: "equal", field: "model", value: "x" }] };
	expect(writePageToken("conversations", scope, 7n)).toBe("T0dNcnhVWVpIb0xHMEc0TDNvOUVCTSA3");
});

test("a token is valid for an equal scope with members in another order or undefined", () => {
	const token = writePageToken("list", { a: "1", b: { x: 1n, y: "2" }, c: undefined }, 7n);
	expect(readPageToken("list", { b: { y: "2", x: 1n }, a: "1" }, token)).toEqual([7n]);
});

test("a token of another list or scope is refused", () => {
	const token = writePageToken("list", { status: "idle" }, 7n);
	expect(() => readPageToken("other", { status: "idle" }, token)).toThrow(REFUSED);
	expect(() => readPageToken("list", { status: "running" }, token)).toThrow(REFUSED);
	expect(() => readPageToken("list", {}, token)).toThrow(REFUSED);
	expect(() => readPageToken("list", { model: "idle" }, token)).toThrow(REFUSED);
});

test("a token with any bit changed is refused", () => {
	fc.assert(
		fc.property(positions, fc.nat(), (position, at) => {
			const bytes = Buffer.from(writePageToken("list", {}, position), "base64url");
			const bit = at % (bytes.length * 8);
			bytes.writeUInt8(bytes.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
			expect(() => readPageToken("list", {}, bytes.toString("base64url"))).toThrow(REFUSED);
		}),
	);
});

test("text that is not a token is refused", () => {
	expect(readPageToken("list", {}, "")).toEqual([]);
	for (const text of ["x", "=", "not a token", "A".repeat(33), "A".repeat(34), "A".repeat(100_000)])
		expect(() => readPageToken("list", {}, text)).toThrow(REFUSED);
});

test("a token with characters that decoding would skip is refused", () => {
	const token = writePageToken("list", {}, 7n);
	for (const text of [`${token} `, `${token}=`, ` ${token}`, `${token}\n`, `${token.slice(0, 5)}.${token.slice(5)}`])
		expect(() => readPageToken("list", {}, text)).toThrow(REFUSED);
});
