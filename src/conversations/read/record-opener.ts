import { isDataLoss, ServiceError } from "../../errors.ts";
import type { StoredRecord, Unreadable } from "../../store/stored-record.ts";

/** A stored record with its update. */
export interface RecordSource {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly record: StoredRecord | Unreadable | undefined;
}

/** Where a record or an event is stored. The sequence number is that of its log. */
export type StoredAt = Pick<RecordSource, "conversationId" | "sequence">;

/** Called with each stored record or event that could not be read. */
export type OnUnreadable = (stored: StoredAt & { readonly error: ServiceError }) => void;

/** Returns the result of `read`. If it throws a ServiceError `data_loss`, calls the callback and returns undefined. */
export function tryRead<Result>(source: StoredAt, onUnreadable: OnUnreadable, read: () => Result): Result | undefined {
	try {
		return read();
	} catch (error) {
		if (!isDataLoss(error)) throw error;
		onUnreadable({ conversationId: source.conversationId, sequence: source.sequence, error });
		return undefined;
	}
}

/** As {@link tryRead}, for a record that another thread opens. */
export async function tryOpen<Result>(
	source: StoredAt,
	onUnreadable: OnUnreadable,
	open: () => Promise<Result>,
): Promise<Result | undefined> {
	const opened = await open().then(
		(result) => () => result,
		(error: unknown) => () => {
			throw error;
		},
	);
	return tryRead(source, onUnreadable, opened);
}

/** @throws ServiceError `data_loss` when the store could not read the record */
export function storedRecord({ conversationId, sequence, record }: RecordSource): StoredRecord {
	if (record === undefined) throw new TypeError(`update ${sequence} was read without its record`);
	if (!("unreadable" in record)) return record;
	throw unreadableError(conversationId, record.unreadable);
}

/** @param message of the engine */
export function unreadableError(conversationId: string, message: string): ServiceError {
	return new ServiceError("data_loss", "The stored record cannot be read", {
		conversationId,
		cause: new Error(message),
	});
}

/** Bytes of a stored record; 0 when it cannot be read or was not requested. */
export function recordSize(record: RecordSource["record"]): number {
	return record === undefined || "unreadable" in record ? 0 : record.bytes.byteLength;
}
