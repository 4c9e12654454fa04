import {
	createCipheriv,
	createDecipheriv,
	createSecretKey,
	hash,
	hkdfSync,
	type KeyObject,
	randomBytes,
} from "node:crypto";
import { ServiceError } from "../../errors.ts";
import type { Secret } from "./free-form-secrets.ts";

/** Prefix of a ciphertext's text form. It includes the version of this form and of the encryption. */
const PREFIX = "enc:v1:";
const NUMBER = "number:";
const ALGORITHM = "aes-256-gcm";
const KEY_BYTES = 32;
const KEY_ID_BYTES = 8;
/** Recommended nonce length and full tag length of GCM, in bytes (NIST SP 800-38D, sections 5.2.1.1 and 5.2.1.2). */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const MAX_SHOWN_PLACE = 200;

interface Key {
	readonly id: string;
	readonly key: KeyObject;
}

/**
 * Encrypts with AES-256-GCM and a random 96-bit nonce. The associated data are the conversation's id and the secret's
 * place, so that a ciphertext cannot be decrypted at another place.
 *
 * Each conversation has its own key, derived from the configured one by HKDF-SHA256 (RFC 5869). Random nonces allow
 * 2^32 encryptions with one key (NIST SP 800-38D, section 8.3), which a busy service reaches within weeks.
 *
 * The text form of a ciphertext is `enc:v1:<key id>:<payload>`, and that of an encrypted number
 * `enc:v1:number:<key id>:<payload>`. A number is encrypted as its JSON text, a bigint with `n` after it, and `number:`
 * precedes the associated data. The key id is the first 8 bytes of the configured key's SHA-256. The payload is nonce,
 * tag and encrypted UTF-8. Both are base64url without padding (RFC 4648, section 5).
 */
export class Cipher {
	readonly #encryptionKey: Key | undefined;
	readonly #keys: ReadonlyMap<string, Key>;

	/** @param keys 32 bytes each: the first one encrypts, all decrypt; without a key, both operations throw */
	constructor(keys: readonly KeyObject[]) {
		const identified = keys.map((key) => ({ id: keyIdBytes(key).toString("base64url"), key }));
		this.#encryptionKey = identified[0];
		this.#keys = new Map(identified.map((key) => [key.id, key]));
	}

	/**
	 * Returns the cipher of a conversation. It keeps the keys that it derives: use one for all secrets of a record. A
	 * secret's place is its JSON Pointer (RFC 6901).
	 */
	of(conversationId: string) {
		const derived = new Map<string, KeyObject>();
		const keyOf = ({ id, key }: Key): KeyObject =>
			derived.getOrInsertComputed(id, () => deriveKey(key, `conversation secrets ${conversationId}`));
		// A pointer begins with a slash and an id contains none, so that the concatenation is unambiguous.
		const associate = (pointer: string, isNumber: boolean): Buffer =>
			Buffer.from(`${isNumber ? NUMBER : ""}${conversationId}${pointer}`);
		return {
			/** Returns the ciphertext as text that {@link isCiphertext} recognises. The text is different in each call. */
			encrypt: (secret: Secret, pointer: string): string => {
				if (this.#encryptionKey === undefined) throw new TypeError("there is no key to encrypt with");
				const nonce = randomBytes(NONCE_BYTES);
				const cipher = createCipheriv(ALGORITHM, keyOf(this.#encryptionKey), nonce, { authTagLength: TAG_BYTES });
				const isNumber = typeof secret !== "string";
				cipher.setAAD(associate(pointer, isNumber));
				const encrypted = Buffer.concat([
					cipher.update(typeof secret === "bigint" ? `${secret}n` : String(secret), "utf8"),
					cipher.final(),
				]);
				const payload = Buffer.concat([nonce, cipher.getAuthTag(), encrypted]);
				return `${PREFIX}${isNumber ? NUMBER : ""}${this.#encryptionKey.id}:${payload.toString("base64url")}`;
			},
			/**
			 * Returns the secret that `encrypt` encrypted for the same conversation and place. Throws `data_loss` for any
			 * other text, and when the key of the ciphertext is not configured.
			 */
			decrypt: (ciphertext: string, pointer: string): Secret => {
				const lost = (reason: string) => lostSecret(conversationId, pointer, reason);
				const parsed = parse(ciphertext);
				if (parsed === undefined) throw lost("the stored text is not a ciphertext");
				const { id, payload, isNumber } = parsed;
				const key = this.#keys.get(id);
				if (key === undefined) throw lost(`no encryption key with the id ${id} is configured`);
				const nonce = payload.subarray(0, NONCE_BYTES);
				const decipher = createDecipheriv(ALGORITHM, keyOf(key), nonce, { authTagLength: TAG_BYTES });
				decipher.setAAD(associate(pointer, isNumber));
				decipher.setAuthTag(payload.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
				const decrypted = decipher.update(payload.subarray(NONCE_BYTES + TAG_BYTES));
				try {
					const secret = Buffer.concat([decrypted, decipher.final()]).toString("utf8");
					return isNumber ? toNumber(secret) : secret;
				} catch {
					throw lost("the ciphertext was changed, or it belongs to another place");
				}
			},
		};
	}
}

/** Whether a text has the form of a ciphertext. Does not check that it can be decrypted. */
export function isCiphertext(text: string): boolean {
	return parse(text) !== undefined;
}

/** Whether a text begins like a ciphertext, so that it was one if it is not damaged. */
export function beginsLikeCiphertext(text: string): boolean {
	return text.startsWith(PREFIX);
}

/** Derives a 256-bit key for one purpose from a configured key (HKDF-SHA256, RFC 5869). */
function deriveKey(key: KeyObject, purpose: string): KeyObject {
	return createSecretKey(Buffer.from(hkdfSync("sha256", key, "", purpose, KEY_BYTES)));
}

function toNumber(text: string): number | bigint {
	return text.endsWith("n") ? BigInt(text.slice(0, -1)) : Number(text);
}

/** Returns what identifies a configured key: the first bytes of its SHA-256. */
function keyIdBytes(key: KeyObject): Buffer {
	return hash("sha256", key.export(), "buffer").subarray(0, KEY_ID_BYTES);
}

function parse(text: string) {
	if (!text.startsWith(PREFIX)) return undefined;
	const isNumber = text.startsWith(NUMBER, PREFIX.length);
	const [id = "", encoded = "", ...rest] = text.slice(PREFIX.length + (isNumber ? NUMBER.length : 0)).split(":", 3);
	const payload = Buffer.from(encoded, "base64url");
	// Decoding skips characters that are not base64url and ignores spare bits. Encoding again reveals such a text.
	if (rest.length > 0 || payload.toString("base64url") !== encoded) return undefined;
	return payload.length < NONCE_BYTES + TAG_BYTES ? undefined : { id, payload, isNumber };
}

function lostSecret(conversationId: string, pointer: string, reason: string): ServiceError {
	// The slice may cut a surrogate pair, which would leave a lone surrogate in the message.
	const place = pointer.slice(0, MAX_SHOWN_PLACE).toWellFormed();
	return new ServiceError(
		"data_loss",
		`The secret ${place} of conversation ${conversationId} cannot be decrypted: ${reason}`,
	);
}

/** First byte of the sealed form: its version. */
const VERSION = 1;
const HEADER_BYTES = 1 + KEY_ID_BYTES + NONCE_BYTES + TAG_BYTES;

/**
 * Encrypts whole byte strings with AES-256-GCM, each with a key of its own that is derived from a configured key by
 * HKDF-SHA256 (RFC 5869). Keys are rotated as those of records: the first one encrypts, all decrypt.
 *
 * The sealed form is a version, the id of the configured key (8 bytes), nonce, tag and ciphertext.
 */
export class SealedBytes {
	readonly #keys: readonly { readonly id: Buffer; readonly key: KeyObject }[];

	/** @param keys 32 bytes each; without a key, nothing can be sealed or opened */
	constructor(keys: readonly KeyObject[]) {
		this.#keys = keys.map((key) => ({ id: keyIdBytes(key), key }));
	}

	get canSeal(): boolean {
		return this.#keys.length > 0;
	}

	/**
	 * @param purpose what the bytes are, different for each byte string. Only the same purpose opens them
	 * @throws TypeError without a key
	 */
	seal(bytes: Uint8Array, purpose: string): Uint8Array {
		const [first] = this.#keys;
		if (first === undefined) throw new TypeError("there is no key to encrypt with");
		const nonce = randomBytes(NONCE_BYTES);
		const cipher = createCipheriv(ALGORITHM, deriveKey(first.key, purpose), nonce, { authTagLength: TAG_BYTES });
		const encrypted = Buffer.concat([cipher.update(bytes), cipher.final()]);
		return new Uint8Array(Buffer.concat([Buffer.of(VERSION), first.id, nonce, cipher.getAuthTag(), encrypted]));
	}

	/** @throws ServiceError `data_loss` when the key is not configured, or the bytes were changed or have another purpose */
	open(sealed: Uint8Array, purpose: string): Buffer {
		const lost = (reason: string) => new ServiceError("data_loss", `The ${purpose} cannot be decrypted: ${reason}`);
		const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
		if (bytes.length < HEADER_BYTES || bytes[0] !== VERSION) throw lost("it is damaged");
		const id = bytes.subarray(1, 1 + KEY_ID_BYTES);
		const found = this.#keys.find((key) => key.id.equals(id));
		if (found === undefined) throw lost(`no encryption key with the id ${id.toString("base64url")} is configured`);
		const nonce = bytes.subarray(1 + KEY_ID_BYTES, HEADER_BYTES - TAG_BYTES);
		const decipher = createDecipheriv(ALGORITHM, deriveKey(found.key, purpose), nonce, { authTagLength: TAG_BYTES });
		decipher.setAuthTag(bytes.subarray(HEADER_BYTES - TAG_BYTES, HEADER_BYTES));
		try {
			return Buffer.concat([decipher.update(bytes.subarray(HEADER_BYTES)), decipher.final()]);
		} catch {
			throw lost("it was changed, or belongs to another one");
		}
	}
}
