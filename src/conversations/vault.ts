import { hash } from "node:crypto";
import { fromBinary } from "@bufbuild/protobuf";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { deriveBinaryEncoder } from "../record/binary.ts";
import type { MessagePlan } from "../record/plan.ts";
import { deriveSecretWalk, REDACTED, type SecretWalk } from "../record/secrets.ts";

/** A record as the store keeps it. */
export interface SealedRecord {
	/** The encoded record, in which no secret stands in plain text. */
	readonly bytes: Uint8Array;
	/** Tells the record from every other one. */
	readonly digest: Uint8Array;
}

/**
 * Protects the secrets of records at rest by the specification's serialization rule: without a cipher they are
 * redacted.
 */
export class RecordVault {
	readonly #walk: SecretWalk;
	readonly #encode = deriveBinaryEncoder(ConversationInfoSchema);

	constructor(plan: MessagePlan) {
		this.#walk = deriveSecretWalk(plan);
	}

	/** Encodes a record without its secrets. Changes the record. */
	seal(record: ConversationInfo): SealedRecord {
		this.#walk(record, () => REDACTED);
		const bytes = this.#encode(record);
		return { bytes, digest: hash("sha256", bytes, "buffer") };
	}

	/** Decodes a sealed record. */
	open(bytes: Uint8Array): ConversationInfo {
		return fromBinary(ConversationInfoSchema, bytes);
	}
}
