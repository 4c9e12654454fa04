import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from "node:crypto";
import { ServiceError } from "../../errors.ts";
import { ALGORITHM, deriveKey, KEY_ID_BYTES, keyIdBytes, NONCE_BYTES, TAG_BYTES } from "./cipher.ts";

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

	/** Whether there is a key. */
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
