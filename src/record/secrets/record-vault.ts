import { createHmac, type KeyObject } from "node:crypto";
import { equals } from "@bufbuild/protobuf";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { deriveBinaryEncoder } from "../binary.ts";
import type { MessagePlan } from "../plan/plan.ts";
import { deriveBinaryDecoder } from "../read-binary.ts";
import { Cipher, deriveKey, isCiphertext } from "./cipher.ts";
import { deriveSecretWalk, REDACTED, type SecretsForm, type SecretWalk, secretPlacesDigest } from "./secret-walk.ts";

/** A record as the store keeps it. */
export interface SealedRecord {
	/** The encoded record, in which no secret stands in plain text. */
	readonly bytes: Uint8Array;
	/**
	 * Tells the record from every other one, 32 bytes. Undefined without keys: then the bytes tell, and records that
	 * differ in nothing but secrets are the same, as they are stored alike. With keys it covers the secrets, and depends
	 * on the first key: a record that comes again after another key was put first is not recognised, and is kept as one
	 * more update.
	 */
	readonly digest: Uint8Array | undefined;
	/** How the record is protected, for {@link RecordVault.openEncoded}. */
	readonly seal: number;
}

/** Seal of a record of which nothing is known. */
const UNKNOWN = 0;

/**
 * Protects the secrets of records at rest by the specification's serialization rule: with a key they are encrypted,
 * without one they are redacted. What arrived redacted or empty stays so.
 */
export class RecordVault {
	readonly #walk: SecretWalk;
	readonly #encode = deriveBinaryEncoder(ConversationInfoSchema);
	readonly #decode = deriveBinaryDecoder(ConversationInfoSchema);
	readonly #cipher: Cipher;
	/** Key of the digests; undefined when there are no keys. */
	readonly #digestKey: KeyObject | undefined;
	/** Seal of a record in which each secret, as this release knows them, is redacted or empty. */
	readonly #redacted: number;

	/** @param keys 32 bytes each: the first encrypts, all decrypt; with none, secrets are redacted before they are kept */
	constructor(plan: MessagePlan, keys: readonly KeyObject[]) {
		this.#walk = deriveSecretWalk(plan);
		this.#redacted = secretPlacesDigest(plan);
		this.#cipher = new Cipher(keys);
		const [first] = keys;
		// Encrypted records never repeat, and a bare digest of a plain one would let guesses at its secrets be checked.
		this.#digestKey = first && deriveKey(first, "record digest");
	}

	/** Encodes a record without its secrets. Changes the record. */
	seal(record: ConversationInfo): SealedRecord {
		if (this.#digestKey === undefined) {
			this.#walk(record, () => REDACTED);
			const bytes = this.#encode(record);
			return { bytes, digest: undefined, seal: this.#redacted };
		}
		const plain = this.#encode(record);
		const digest = createHmac("sha256", this.#digestKey).update(plain).digest();
		const cipher = this.#cipher.of(idOf(record));
		let secrets = 0;
		// Any secret is encrypted as it came: one that looks like a ciphertext is a secret of its sender like others.
		this.#walk(record, (secret, pointer) => {
			secrets++;
			return cipher.encrypt(secret, pointer);
		});
		return secrets === 0
			? { bytes: plain, digest, seal: this.#redacted }
			: { bytes: this.#encode(record), digest, seal: UNKNOWN };
	}

	/** Encodes a record without its secrets. Changes the record. */
	protect(record: ConversationInfo): { bytes: Uint8Array; redactionVersion: number; schemaVersion: number } {
		const { bytes, seal } = this.seal(record);
		return { bytes, redactionVersion: seal, schemaVersion: 0 };
	}

	/** Whether two stored records are the same record, secrets in plain text compared. */
	isSame(stored: Uint8Array, arriving: Uint8Array): boolean {
		return equals(ConversationInfoSchema, this.open(stored, "plaintext"), this.open(arriving, "plaintext"));
	}

	/**
	 * Decodes a sealed record.
	 *
	 * @param form what becomes of its secrets. `redacted`: asterisks. `encrypted`: as they are stored, so redacted where
	 *   they were stored without a key. `plaintext`: decrypted; those that were stored redacted stay so.
	 * @throws ServiceError `data_loss`, for `plaintext` alone, when what is stored cannot be decrypted: its key is not
	 *   configured, it was changed, or it comes from another record or place
	 */
	open(bytes: Uint8Array, form: SecretsForm): ConversationInfo {
		const record = this.#decode(bytes);
		switch (form) {
			case "redacted":
				this.#walk(record, () => REDACTED);
				break;
			case "encrypted":
				// Nothing else is ever stored; if it is all the same, it is not given away.
				this.#walk(record, (stored) => (isCiphertext(stored) ? stored : REDACTED));
				break;
			case "plaintext": {
				const cipher = this.#cipher.of(idOf(record));
				this.#walk(record, (stored, pointer) => cipher.decrypt(stored, pointer));
				break;
			}
		}
		return record;
	}

	/**
	 * The encoded form of what {@link open} gives. A record without ciphertexts looks the same in every form, and is
	 * given as it is stored.
	 *
	 * @param seal what `seal` said of the record
	 * @throws ServiceError as `open` does
	 */
	openEncoded(
		bytes: Uint8Array,
		{ redactionVersion }: { readonly redactionVersion: number },
		form: SecretsForm,
	): Uint8Array {
		return redactionVersion === this.#redacted ? bytes : this.#encode(this.open(bytes, form));
	}
}

function idOf(record: ConversationInfo): string {
	return record.id ?? "";
}
