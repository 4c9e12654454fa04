import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { isDataLoss } from "../../errors.ts";
import { deriveDiff } from "../../record/diff.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";

/** Returns the paths of the fields in which two records differ. */
export const diffRecords = deriveDiff(ConversationInfoSchema);

/** Two stored records to compare. */
export interface ComparedRecords {
	/** Undefined when there is none. */
	readonly before: Uint8Array | undefined;
	readonly after: Uint8Array;
	/** Whether the paths of changed secrets are wanted, too. */
	readonly secretPaths: boolean;
}

/**
 * Opens a record for comparison. With `secretPaths`, its secrets are in plain text, because equal secrets have different
 * ciphertexts. When one cannot be decrypted, all of them stay encrypted, so they can count as changed.
 *
 * @throws ServiceError `data_loss` when the record cannot be read
 */
export function openComparable(vault: RecordVault, bytes: Uint8Array, secretPaths: boolean): ConversationInfo {
	if (!secretPaths) return vault.open(bytes, "redacted");
	try {
		return vault.open(bytes, "plaintext");
	} catch (error) {
		if (!isDataLoss(error)) throw error;
		return vault.open(bytes, "encrypted");
	}
}

/**
 * Returns the paths of the changed fields. Undefined when there is no record before, or it cannot be read.
 *
 * @throws ServiceError `data_loss` when the record after cannot be read
 */
export function changedPaths(
	vault: RecordVault,
	{ before, after, secretPaths }: ComparedRecords,
): readonly string[] | undefined {
	const opened = openComparable(vault, after, secretPaths);
	if (before === undefined) return undefined;
	try {
		return diffRecords(openComparable(vault, before, secretPaths), opened);
	} catch (error) {
		if (!isDataLoss(error)) throw error;
		return undefined;
	}
}
