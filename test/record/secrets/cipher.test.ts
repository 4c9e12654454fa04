import { createDecipheriv, createHash, createSecretKey, hkdfSync, type KeyObject } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ServiceError } from "../../../src/errors.ts";
import { Cipher, isCiphertext } from "../../../src/record/secrets/cipher.ts";

const ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const OTHER_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae8";
const PLACE = "/agent/llm/api_key";

const bytes = (fill: number) => Buffer.alloc(32, fill);
const key = (fill: number): KeyObject => createSecretKey(bytes(fill));
const cipher = new Cipher([key(1)]).of(ID);

function dataLoss(reason: string, place = PLACE, id = ID): ServiceError {
	return new ServiceError("data_loss", `The secret ${place} of conversation ${id} cannot be decrypted: ${reason}`);
}

const CHANGED = "the ciphertext was changed, or it belongs to another place";
const NO_CIPHERTEXT = "the stored text is not a ciphertext";

const secrets = fc.oneof(
	fc.string({ unit: "binary" }),
	fc.constantFrom("", "**********", "enc:v1:", "ключ 🔑", cipher.encrypt("inner", PLACE)),
);

test("decryption returns the secret, and two encryptions of it have different ciphertexts", () => {
	fc.assert(
		fc.property(secrets, fc.string({ unit: "binary" }), (secret, token) => {
			const place = `/${token}`;
			const ciphertexts = [cipher.encrypt(secret, place), cipher.encrypt(secret, place)];
			expect(new Set(ciphertexts).size).toBe(2);
			expect(ciphertexts.map(isCiphertext)).toEqual([true, true]);
			expect(ciphertexts.map((text) => new Cipher([key(1)]).of(ID).decrypt(text, place))).toEqual([secret, secret]);
		}),
	);
});

test("a ciphertext has the documented form", () => {
	const text = cipher.encrypt("the secret", PLACE);
	const [, id, payload = ""] = /^enc:v1:([\w-]{11}):([\w-]+)$/.exec(text) ?? [];
	expect(id).toBe(createHash("sha256").update(bytes(1)).digest().subarray(0, 8).toString("base64url"));

	const parts = Buffer.from(payload, "base64url");
	const derived = Buffer.from(hkdfSync("sha256", bytes(1), "", `conversation secrets ${ID}`, 32));
	const decipher = createDecipheriv("aes-256-gcm", derived, parts.subarray(0, 12));
	decipher.setAAD(Buffer.from(`${ID}${PLACE}`)).setAuthTag(parts.subarray(12, 28));
	expect(decipher.update(parts.subarray(28), undefined, "utf8") + decipher.final("utf8")).toBe("the secret");
});

test("the first key encrypts, every key decrypts", () => {
	const old = cipher.encrypt("secret", PLACE);
	const rotated = new Cipher([key(2), key(1)]).of(ID);
	expect(rotated.decrypt(old, PLACE)).toBe("secret");
	expect(new Cipher([key(2)]).of(ID).decrypt(rotated.encrypt("secret", PLACE), PLACE)).toBe("secret");
});

test("decrypting without the required key fails with the id of that key", () => {
	const text = cipher.encrypt("secret", PLACE);
	const missing = dataLoss(`no encryption key with the id ${text.split(":")[2]} is configured`);
	for (const keys of [[], [key(2)]]) expect(() => new Cipher(keys).of(ID).decrypt(text, PLACE)).toThrow(missing);
	expect(() => new Cipher([]).of(ID).encrypt("secret", PLACE)).toThrow(TypeError);
});

test("a ciphertext of another conversation or another place cannot be decrypted", () => {
	const text = cipher.encrypt("secret", PLACE);
	expect(() => new Cipher([key(1)]).of(OTHER_ID).decrypt(text, PLACE)).toThrow(dataLoss(CHANGED, PLACE, OTHER_ID));
	fc.assert(
		fc.property(fc.string({ unit: "binary" }), (place) => {
			fc.pre(place !== PLACE);
			expect(() => cipher.decrypt(text, place)).toThrow(dataLoss(CHANGED, place.slice(0, 200).toWellFormed()));
		}),
	);
});

test("a ciphertext of another key under the id of this key is refused", () => {
	const foreign = new Cipher([key(2)]).of(ID).encrypt("secret", PLACE).split(":");
	const own = cipher.encrypt("secret", PLACE).split(":");
	const mixed = [...own.slice(0, 3), ...foreign.slice(3)].join(":");
	expect(() => cipher.decrypt(mixed, PLACE)).toThrow(dataLoss(CHANGED));
});

test("a ciphertext with any character changed, added or removed is refused", () => {
	const character = fc.oneof(
		fc.constantFrom(..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_:=+/ \n"),
		fc.string({ unit: "binary", minLength: 1, maxLength: 1 }),
	);
	fc.assert(
		fc.property(secrets, fc.nat(), fc.option(character, { nil: "" }), fc.boolean(), (secret, at, put, insert) => {
			const text = cipher.encrypt(secret, PLACE);
			const index = at % (text.length + (insert ? 1 : 0));
			const changed = text.slice(0, index) + put + text.slice(insert ? index : index + 1);
			fc.pre(changed !== text);
			expect(() => cipher.decrypt(changed, PLACE)).toThrow(
				expect.objectContaining({ name: "ServiceError", kind: "data_loss" }),
			);
		}),
		{ numRuns: 2000 },
	);
});

test.each([
	"",
	"secret",
	"enc:v1:",
	"enc:v2:AAAAAAAAAAA:AAAA",
	"gAAAAABsecret",
	`enc:v1:AAAAAAAAAAA:${"A".repeat(36)}`,
])("%j is not a ciphertext", (text) => {
	expect(isCiphertext(text)).toBe(false);
	expect(() => cipher.decrypt(text, PLACE)).toThrow(dataLoss(NO_CIPHERTEXT));
});

test("an error quotes only the beginning of a long place", () => {
	const place = `/${"x".repeat(198)}🔑${"y".repeat(1000)}`;
	expect(() => cipher.decrypt("x", place)).toThrow(dataLoss(NO_CIPHERTEXT, `/${"x".repeat(198)}\ufffd`));
});
