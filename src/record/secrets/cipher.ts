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

/** Marks the text form of a ciphertext, and the version of all that is decided here. */
const PREFIX = "enc:v1:";
/** Follows the prefix when the secret is a number. */
const NUMBER = "number:";
const ALGORITHM = "aes-256-gcm";
const KEY_BYTES = 32;
const KEY_ID_BYTES = 8;
/** Nonce and tag lengths that GCM is made for (NIST SP 800-38D, sections 5.2.1.1 and 5.2.1.2). */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Most UTF-16 code units of a secret's place that an error message quotes. */
const MAX_SHOWN_PLACE = 200;

/** Encrypts and decrypts the secrets of one conversation. A secret's place is its JSON Pointer (RFC 6901). */
export interface ConversationCipher {
	/** The ciphertext, as text that {@link isCiphertext} recognises; another one each time. */
	encrypt(secret: Secret, pointer: string): string;
	/**
	 * The secret that {@link encrypt} encrypted for the same conversation and place.
	 *
	 * @throws ServiceError `data_loss` for any other text, and when the key that it needs is not there
	 */
	decrypt(ciphertext: string, pointer: string): Secret;
}

interface Key {
	readonly id: string;
	readonly key: KeyObject;
}

/**
 * AES-256-GCM with a random 96-bit nonce and the conversation's id and the secret's place as associated data, so that
 * a ciphertext is of no use anywhere else.
 *
 * Each conversation has a key of its own, derived from the configured one by HKDF-SHA256 (RFC 5869): random nonces
 * allow 2^32 encryptions with one key (NIST SP 800-38D, section 8.3), which a busy service reaches within weeks.
 *
 * The text form of a ciphertext is `enc:v1:<key id>:<payload>`; of a number, which is encrypted as its JSON text,
 * `enc:v1:number:<key id>:<payload>`, with the word `number` before the associated data. The JSON text of a bigint ends
 * with `n`. The key id is the first 8 bytes of the configured key's SHA-256, the payload nonce, tag and encrypted UTF-8;
 * both are base64url without padding (RFC 4648, section 5).
 */
export class Cipher {
	readonly #first: Key | undefined;
	readonly #keys: ReadonlyMap<string, Key>;

	/** @param keys 32 bytes each: the first encrypts, all decrypt; with none, nothing can be done but to tell so */
	constructor(keys: readonly KeyObject[]) {
		const identified = keys.map((key) => ({ id: keyId(key), key }));
		this.#first = identified[0];
		this.#keys = new Map(identified.map((key) => [key.id, key]));
	}

	/** The cipher of a conversation. Keeps the keys that it derives, so it is worth using again for one record. */
	of(conversationId: string): ConversationCipher {
		const derived = new Map<string, KeyObject>();
		const keyOf = ({ id, key }: Key): KeyObject =>
			derived.getOrInsertComputed(id, () => deriveKey(key, `conversation secrets ${conversationId}`));
		// A pointer begins with a slash, which an id has none of, so this cannot be read in two ways.
		const associate = (pointer: string, isNumber: boolean): Buffer =>
			Buffer.from(`${isNumber ? NUMBER : ""}${conversationId}${pointer}`);
		return {
			encrypt: (secret, pointer) => {
				if (this.#first === undefined) throw new TypeError("there is no key to encrypt with");
				const nonce = randomBytes(NONCE_BYTES);
				const cipher = createCipheriv(ALGORITHM, keyOf(this.#first), nonce, { authTagLength: TAG_BYTES });
				const isNumber = typeof secret !== "string";
				cipher.setAAD(associate(pointer, isNumber));
				const encrypted = Buffer.concat([cipher.update(textOf(secret), "utf8"), cipher.final()]);
				const payload = Buffer.concat([nonce, cipher.getAuthTag(), encrypted]);
				return `${PREFIX}${isNumber ? NUMBER : ""}${this.#first.id}:${payload.toString("base64url")}`;
			},
			decrypt: (ciphertext, pointer) => {
				const lost = (reason: string) => lostSecret(conversationId, pointer, reason);
				const parsed = parse(ciphertext);
				if (parsed === undefined) throw lost("what is stored is not a ciphertext");
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

/** Whether a text has the form of a ciphertext. Says nothing about whether it can be decrypted. */
export function isCiphertext(text: string): boolean {
	return parse(text) !== undefined;
}

/** Derives a 256-bit key for one purpose (HKDF-SHA256, RFC 5869) from a key that encrypts secrets. */
function deriveKey(key: KeyObject, purpose: string): KeyObject {
	return createSecretKey(Buffer.from(hkdfSync("sha256", key, "", purpose, KEY_BYTES)));
}

function textOf(secret: Secret): string {
	return typeof secret === "bigint" ? `${secret}n` : String(secret);
}

function toNumber(text: string): number | bigint {
	return text.endsWith("n") ? BigInt(text.slice(0, -1)) : Number(text);
}

function keyId(key: KeyObject): string {
	return hash("sha256", key.export(), "buffer").subarray(0, KEY_ID_BYTES).toString("base64url");
}

/** The parts of a ciphertext; undefined when the text does not have the form of one. */
function parse(text: string) {
	if (!text.startsWith(PREFIX)) return undefined;
	const isNumber = text.startsWith(NUMBER, PREFIX.length);
	const [id = "", encoded = "", ...rest] = text.slice(PREFIX.length + (isNumber ? NUMBER.length : 0)).split(":", 3);
	const payload = Buffer.from(encoded, "base64url");
	// Decoding skips what is not base64url and ignores spare bits, so only the way back shows that nothing was changed.
	if (rest.length > 0 || payload.toString("base64url") !== encoded) return undefined;
	return payload.length < NONCE_BYTES + TAG_BYTES ? undefined : { id, payload, isNumber };
}

function lostSecret(conversationId: string, pointer: string, reason: string): ServiceError {
	// A cut through a surrogate pair must not spoil the message.
	const place = pointer.slice(0, MAX_SHOWN_PLACE).toWellFormed();
	return new ServiceError(
		"data_loss",
		`The secret ${place} of conversation ${conversationId} cannot be decrypted: ${reason}`,
	);
}
