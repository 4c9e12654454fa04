import type { KeyObject } from "node:crypto";
import { equals, fromBinary } from "@bufbuild/protobuf";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { ServiceError } from "../../errors.ts";
import { hasUserinfo, REDACTED, replaceUserinfo } from "../../userinfo.ts";
import { deriveBinaryEncoder } from "../binary-encoder.ts";
import { type ProtectedRecord, pickMembers } from "../record-delta.ts";
import type { RecordFormat } from "../record-format.ts";
import { beginsLikeCiphertext, Cipher, isCiphertext } from "./cipher.ts";
import {
	deriveSecretWalk,
	type RecordWalk,
	type Replace,
	redactionVersionOf,
	type SecretsForm,
} from "./secret-walk.ts";

/** Maximum number of secrets in one record. Real records have a few dozen. */
export const MAX_SECRETS = 10_000;

/** Redaction version of a record that holds ciphertexts. */
const ENCRYPTED = 0;

/**
 * Protects the secrets of records at rest by the specification's serialization rule: with a key they are encrypted,
 * without one they are redacted. A secret that arrived redacted or empty stays so.
 */
export class RecordVault {
	readonly #format: RecordFormat;
	readonly #walkSecrets: RecordWalk;
	readonly #walkNonSecrets: RecordWalk;
	readonly #cipher: Cipher | undefined;
	readonly #decrypting: Cipher;
	readonly #redactionVersion: number;
	readonly #encode: (record: ConversationInfo) => Uint8Array;

	/** @param keys 32 bytes each: the first one encrypts, all decrypt; without a key, secrets are stored redacted */
	constructor(format: RecordFormat, keys: readonly KeyObject[]) {
		this.#format = format;
		this.#encode = deriveBinaryEncoder(format.plan.desc);
		this.#walkSecrets = deriveSecretWalk(format.plan);
		this.#walkNonSecrets = deriveSecretWalk(format.plan, false);
		this.#redactionVersion = redactionVersionOf(format.plan);
		this.#decrypting = new Cipher(keys);
		this.#cipher = keys.length > 0 ? this.#decrypting : undefined;
	}

	/**
	 * Encodes a record with its secrets encrypted, or redacted if there is no key. Everything else that is derived from the
	 * record must be derived from `record` afterwards.
	 *
	 * @param record is changed in place: afterwards its secrets are redacted, also if there is a key
	 * @param id the conversation's id, for a record with only some of its members
	 * @throws ServiceError `invalid_record` when it has more than {@link MAX_SECRETS} secrets
	 */
	protect(record: ConversationInfo, id = idOf(record)): ProtectedRecord {
		const cipher = this.#cipher?.of(id);
		let count = 0;
		const hide: Replace = (secret, pointer) => {
			count++;
			if (count > MAX_SECRETS) throw tooManySecrets(idOf(record));
			// A secret that looks like a ciphertext is encrypted like any other secret of its sender.
			return cipher === undefined ? REDACTED : cipher.encrypt(secret, pointer);
		};
		this.#walkSecrets(record, hide);
		let bytes: Uint8Array = this.#encode(record);
		const withUserinfo = mayHaveUserinfo(bytes);
		if (withUserinfo) {
			this.#replaceUserinfo(record, hide);
			bytes = this.#encode(record);
		}
		if (cipher !== undefined && count > 0) {
			const redact: Replace = () => REDACTED;
			this.#walkSecrets(record, redact);
			if (withUserinfo) this.#replaceUserinfo(record, redact);
		}
		const redactionVersion = cipher !== undefined && count > 0 ? ENCRYPTED : this.#redactionVersion;
		return { bytes, redactionVersion };
	}

	/** Returns the JSON Pointers of the secrets of a record in plain text. Those that are redacted are left out. */
	secretsIn(record: ConversationInfo): string[] {
		const pointers: string[] = [];
		this.#walkSecrets(record, (secret, pointer) => {
			pointers.push(pointer);
			return secret;
		});
		return pointers;
	}

	/**
	 * Decodes a protected record.
	 *
	 * @param form how its secrets are returned. `redacted`: as asterisks. `encrypted`: as they are stored, so redacted
	 *   where they were stored without a key. `plaintext`: decrypted; those that were stored redacted stay so.
	 * @throws ServiceError `data_loss` when the bytes are not a record; for `plaintext` also when a secret cannot be
	 *   decrypted: its key is not configured, its ciphertext was changed, or it comes from another record or place
	 */
	open(bytes: Uint8Array, form: SecretsForm): ConversationInfo {
		const record = readStored(() => fromBinary(ConversationInfoSchema, bytes));
		const show = this.#replacementFor(record, form);
		this.#walkSecrets(record, show);
		if (mayHaveUserinfo(bytes)) this.#replaceUserinfo(record, show);
		return record;
	}

	/**
	 * Does the same as {@link open} for some top-level members of a protected record, without reading the others. Members
	 * that are not named have any value.
	 */
	openMembers(bytes: Uint8Array, names: Iterable<string>, form: SecretsForm): ConversationInfo {
		// Ciphertexts are bound to the id.
		const members = new Set([ConversationInfoSchema.field.id.number]);
		for (const name of names) {
			const field = this.#format.plan.members.get(name);
			if (field !== undefined) members.add(field.desc.number);
		}
		return this.open(
			readStored(() => pickMembers(bytes, members)),
			form,
		);
	}

	/**
	 * Returns the encoded result of {@link open}. The stored bytes themselves are returned when `open` would not change
	 * them: they contain no ciphertext, and the rules of redaction are the same. Throws as `open` does.
	 */
	openEncoded(
		bytes: Uint8Array,
		{ redactionVersion }: Pick<ProtectedRecord, "redactionVersion">,
		form: SecretsForm,
	): Uint8Array {
		return redactionVersion === this.#redactionVersion ? bytes : this.#encode(this.open(bytes, form));
	}

	/**
	 * Whether two protected records are equal, with their secrets in plain text. The order of map entries and of the
	 * members of free-form JSON does not count, and -0.0 equals 0.0. A record that cannot be read or decrypted equals no
	 * other record.
	 */
	isSame(stored: Uint8Array, arriving: Uint8Array): boolean {
		try {
			return equals(ConversationInfoSchema, this.open(stored, "plaintext"), this.open(arriving, "plaintext"));
		} catch (error) {
			if (error instanceof ServiceError && error.kind === "data_loss") return false;
			throw error;
		}
	}

	#replacementFor(record: ConversationInfo, form: SecretsForm): Replace {
		switch (form) {
			case "redacted":
				return () => REDACTED;
			case "encrypted":
				// Only ciphertexts and redacted secrets are stored. Should there be another value, it is not revealed.
				return (stored) => (typeof stored === "string" && isCiphertext(stored) ? stored : REDACTED);
			case "plaintext": {
				const cipher = this.#decrypting.of(idOf(record));
				// A release with fewer rules stored some secrets as they came.
				return (stored, pointer) =>
					typeof stored === "string" && beginsLikeCiphertext(stored) ? cipher.decrypt(stored, pointer) : stored;
			}
		}
	}

	#replaceUserinfo(record: ConversationInfo, replace: Replace): void {
		this.#walkNonSecrets(record, (text, pointer) =>
			replaceUserinfo(String(text), (userinfo) => String(replace(userinfo, pointer))),
		);
	}
}

function readStored<Result>(read: () => Result): Result {
	try {
		return read();
	} catch (cause) {
		throw new ServiceError("data_loss", "The stored record cannot be read", { cause });
	}
}

/** Whether a string of a record may have a URL with a user name and a password. Saves the walk over most records. */
function mayHaveUserinfo(bytes: Uint8Array): boolean {
	// The bytes contain strings unchanged, and the characters that mark userinfo are ASCII.
	return hasUserinfo(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1"));
}

function idOf(record: ConversationInfo): string {
	return record.id ?? "";
}

export function tooManySecrets(conversationId: string): ServiceError {
	const message = `Value error, more than ${MAX_SECRETS} secrets`;
	const violations = [{ path: [], type: "value_error", message }];
	return new ServiceError("invalid_record", message, { violations, conversationId });
}
