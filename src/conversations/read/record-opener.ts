import { isDataLoss, ServiceError } from "../../errors.ts";
import type { StoredRecord, UnreadableRecord } from "../../store/store.ts";

/** A stored record, and the update that brought it. */
export interface RecordSource {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly record: StoredRecord | UnreadableRecord | undefined;
}

/** Where something is stored: a sequence number of its log. */
export type StoredAt = Pick<RecordSource, "conversationId" | "sequence">;

/** Told of each stored record or event that could not be read. */
export type OnUnreadable = (stored: StoredAt & { readonly error: ServiceError }) => void;

/** What `read` gives; undefined, after the callback was told, when it throws a ServiceError `data_loss`. */
export function tryRead<Result>(source: StoredAt, onUnreadable: OnUnreadable, read: () => Result): Result | undefined {
	try {
		return read();
	} catch (error) {
		if (!isDataLoss(error)) throw error;
		onUnreadable({ conversationId: source.conversationId, sequence: source.sequence, error });
		return undefined;
	}
}

/** @throws ServiceError `data_loss` when the store could not read the record */
export function storedRecord({ conversationId, sequence, record }: RecordSource): StoredRecord {
	if (record === undefined) throw new TypeError(`update ${sequence} was read without its record`);
	if (!("unreadable" in record)) return record;
	throw new ServiceError("data_loss", "What is stored of the record cannot be read", {
		conversationId,
		cause: new Error(record.unreadable),
	});
}

/** Bytes of a stored record; 0 when it cannot be read or was not asked for. */
export function recordSize(record: RecordSource["record"]): number {
	return record === undefined || "unreadable" in record ? 0 : record.bytes.byteLength;
}
