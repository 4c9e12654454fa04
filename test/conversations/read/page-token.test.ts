import fc from "fast-check";
import { expect, test } from "vitest";
import { PageTokens } from "../../../src/conversations/read/page-token.ts";
import { ServiceError } from "../../../src/errors.ts";

const [one, two] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)];
const tokens = new PageTokens([one, two]);
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

test("a token is read as its position, also by a process with the same keys in another order", () => {
	fc.assert(
		fc.property(scopes, positions, (scope, position) => {
			const token = tokens.write("list", scope, position);
			expect(token).toMatch(/^[A-Za-z0-9_-]{34}$/);
			expect(new PageTokens([two, one]).read("list", scope, token)).toBe(position);
		}),
	);
});

test("a token is valid for an equal scope with members in another order or undefined", () => {
	const token = tokens.write("list", { a: "1", b: { x: 1n, y: "2" }, c: undefined }, 7n);
	expect(tokens.read("list", { b: { y: "2", x: 1n }, a: "1" }, token)).toBe(7n);
});

test("a token of another list, scope or key is refused", () => {
	const token = tokens.write("list", { status: "idle" }, 7n);
	expect(() => tokens.read("other", { status: "idle" }, token)).toThrow(REFUSED);
	expect(() => tokens.read("list", { status: "running" }, token)).toThrow(REFUSED);
	expect(() => tokens.read("list", {}, token)).toThrow(REFUSED);
	expect(() => tokens.read("list", { model: "idle" }, token)).toThrow(REFUSED);
	expect(() => new PageTokens([one]).read("list", { status: "idle" }, token)).toThrow(REFUSED);
});

test("a token with any bit changed is refused", () => {
	fc.assert(
		fc.property(positions, fc.nat({ max: 25 * 8 - 1 }), (position, bit) => {
			const bytes = Buffer.from(tokens.write("list", {}, position), "base64url");
			bytes.writeUInt8(bytes.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
			expect(() => tokens.read("list", {}, bytes.toString("base64url"))).toThrow(REFUSED);
		}),
	);
});

test("text that is not a token is refused", () => {
	for (const text of ["", "x", "=", "not a token", "A".repeat(33), "A".repeat(34), "A".repeat(100_000)])
		expect(() => tokens.read("list", {}, text)).toThrow(REFUSED);
});

test("a token with characters that decoding would skip is refused", () => {
	const token = tokens.write("list", {}, 7n);
	for (const text of [`${token} `, `${token}=`, ` ${token}`, `${token}\n`, `${token.slice(0, 5)}.${token.slice(5)}`])
		expect(() => tokens.read("list", {}, text)).toThrow(REFUSED);
});
