import type { KeyObject } from "node:crypto";
import { equals, fromBinary } from "@bufbuild/protobuf";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { ServiceError } from "../../errors.ts";
import { deriveBinaryEncoder } from "../../protobuf/binary-encoder.ts";
import type { ProtectedRecord, RecordVersions } from "../protected-record.ts";
import { pointerOf } from "../record-delta.ts";
import type { RecordFormat } from "../record-format.ts";
import { Cipher, isCiphertext } from "./cipher.ts";
import {
	deriveOpenTextWalk,
	deriveSecretWalk,
	REDACTED,
	type RecordWalk,
	type Replace,
	redactionVersionOf,
	type SecretsForm,
} from "./secret-walk.ts";
import { hasUserinfo, replaceUserinfo } from "./userinfo.ts";

/** Most secrets in one record. Real records have a few dozen. */
export const MAX_SECRETS = 10_000;

/** Redaction version of a record that holds ciphertexts. */
const ENCRYPTED = 0;

/**
 * Protects the secrets of records at rest by the specification's serialization rule: with a key they are encrypted,
 * without one they are redacted. What arrived redacted or empty stays so.
 */
export class RecordVault {
	readonly #format: RecordFormat;
	readonly #walkSecrets: RecordWalk;
	readonly #walkOpenText: RecordWalk;
	readonly #cipher: Cipher | undefined;
	readonly #decrypting: Cipher;
	readonly #redactionVersion: number;
	readonly #encode: (record: ConversationInfo) => Uint8Array;

	/** @param keys 32 bytes each: the first encrypts, all decrypt; with none, secrets are redacted before they are kept */
	constructor(format: RecordFormat, keys: readonly KeyObject[]) {
		this.#format = format;
		this.#encode = deriveBinaryEncoder(format.plan.desc);
		this.#walkSecrets = deriveSecretWalk(format.plan);
		this.#walkOpenText = deriveOpenTextWalk(format.plan);
		this.#redactionVersion = redactionVersionOf(format.plan);
		this.#decrypting = new Cipher(keys);
		this.#cipher = keys.length > 0 ? this.#decrypting : undefined;
	}

	/**
	 * Encodes a record without its secrets. Changes the record.
	 *
	 * @param id the record's, where it has only some of its members
	 * @throws ServiceError `invalid_record` when it has more than {@link MAX_SECRETS} secrets
	 */
	protect(record: ConversationInfo, id = idOf(record)): ProtectedRecord {
		const cipher = this.#cipher?.of(id);
		let count = 0;
		const hide: Replace = (secret, pointer) => {
			count++;
			if (count > MAX_SECRETS) throw tooManySecrets(idOf(record));
			// Any secret is encrypted as it came: one that looks like a ciphertext is a secret of its sender like others.
			return cipher === undefined ? REDACTED : cipher.encrypt(secret, pointer);
		};
		this.#walkSecrets(record, hide);
		let bytes: Uint8Array = this.#encode(record);
		if (mayHaveUserinfo(bytes)) {
			this.#replaceUserinfo(record, hide);
			bytes = this.#encode(record);
		}
		const redactionVersion = cipher !== undefined && count > 0 ? ENCRYPTED : this.#redactionVersion;
		return { bytes, redactionVersion, schemaVersion: this.#format.schemaVersion };
	}

	/**
	 * Decodes a protected record. Unnamed members that the schema of this release names are in their fields.
	 *
	 * @param form what becomes of its secrets. `redacted`: asterisks. `encrypted`: as they are stored, so redacted where
	 *   they were stored without a key. `plaintext`: decrypted; those that were stored redacted stay so.
	 * @throws ServiceError `data_loss` when the bytes are no record; for `plaintext` also when what is stored cannot be
	 *   decrypted: its key is not configured, it was changed, or it comes from another record or place
	 */
	open(bytes: Uint8Array, form: SecretsForm): ConversationInfo {
		const record = decode(bytes);
		const show = this.#showing(record, form);
		this.#walkSecrets(record, show);
		if (mayHaveUserinfo(bytes)) this.#replaceUserinfo(record, show);
		// A field can be a secret that was none before it was named.
		if (this.#format.nameUnnamedMembers(record) && form !== "plaintext") this.#walkSecrets(record, show);
		return record;
	}

	/**
	 * The encoded form of what {@link open} gives. The bytes are given as they are stored when nothing in them would be
	 * changed: no ciphertext is inside, the rules of redaction are the same, and the schema names no unnamed member.
	 *
	 * @param versions what `protect` said of the record
	 * @throws ServiceError as `open` does
	 */
	openEncoded(bytes: Uint8Array, versions: RecordVersions, form: SecretsForm): Uint8Array {
		const { redactionVersion, schemaVersion } = versions;
		const asStored =
			redactionVersion === this.#redactionVersion &&
			(schemaVersion === this.#format.schemaVersion ||
				!pointersOf(bytes).some((pointer) => this.#format.namesNow(pointer)));
		return asStored ? bytes : this.#encode(this.open(bytes, form));
	}

	/**
	 * Whether two protected records are the same: their secrets too, in plain text. The order of map entries and of the
	 * members of free-form JSON does not count, nor does -0.0 against 0.0. Records that cannot be read or decrypted are
	 * the same as no other.
	 */
	isSame(stored: Uint8Array, arriving: Uint8Array): boolean {
		try {
			return equals(ConversationInfoSchema, this.open(stored, "plaintext"), this.open(arriving, "plaintext"));
		} catch (error) {
			if (error instanceof ServiceError && error.kind === "data_loss") return false;
			throw error;
		}
	}

	#showing(record: ConversationInfo, form: SecretsForm): Replace {
		switch (form) {
			case "redacted":
				return () => REDACTED;
			case "encrypted":
				// Nothing else is ever stored; if it is all the same, it is not given away.
				return (stored) => (typeof stored === "string" && isCiphertext(stored) ? stored : REDACTED);
			case "plaintext": {
				const cipher = this.#decrypting.of(idOf(record));
				return (stored, pointer) => cipher.decrypt(String(stored), pointer);
			}
		}
	}

	#replaceUserinfo(record: ConversationInfo, replace: Replace): void {
		this.#walkOpenText(record, (text, pointer) =>
			replaceUserinfo(String(text), (userinfo) => String(replace(userinfo, pointer))),
		);
	}
}

function decode(bytes: Uint8Array): ConversationInfo {
	try {
		return fromBinary(ConversationInfoSchema, bytes);
	} catch (cause) {
		throw new ServiceError("data_loss", "The stored record cannot be read", { cause });
	}
}

/** Whether a string of a record can have a URL with a user name and a password. Spares nearly every record a walk. */
function mayHaveUserinfo(bytes: Uint8Array): boolean {
	// Strings stand in the bytes as they are, and what is looked for is ASCII.
	return hasUserinfo(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1"));
}

/** The pointers of a record's unnamed members, read without decoding the rest of it. */
function pointersOf(bytes: Uint8Array): string[] {
	const pointers: string[] = [];
	const record = new BinaryReader(bytes);
	while (record.pos < record.len) {
		const [number, wireType] = record.tag();
		if (number !== ConversationInfoSchema.field.unnamedMembers.number) {
			record.skip(wireType, number);
			continue;
		}
		const pointer = pointerOf(record.bytes());
		if (pointer !== undefined) pointers.push(pointer);
	}
	return pointers;
}

function idOf(record: ConversationInfo): string {
	return record.id ?? "";
}

export function tooManySecrets(conversationId: string): ServiceError {
	const message = `Value error, more than ${MAX_SECRETS} secrets`;
	const violations = [{ path: [], type: "value_error", message }];
	return new ServiceError("invalid_record", message, { violations, conversationId });
}
