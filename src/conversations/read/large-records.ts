import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { StoredRecord } from "../../store/stored-record.ts";
import type { ComparedRecords } from "./comparable-record.ts";

/**
 * Opens large records on another thread, so that they do not delay other requests. The memory of the bytes may be
 * released.
 *
 * Each method throws a ServiceError `unavailable` while too many bytes are being opened.
 */
export interface LargeRecords {
	/** Minimum size of a large record, in bytes. */
	readonly minLargeBytes: number;
	/** As `RecordVault.openEncoded`. */
	openEncoded(record: StoredRecord, form: SecretsForm): Promise<Uint8Array>;
	/** Returns the JSON text of the result of `RecordVault.open`. */
	openJson(record: StoredRecord, form: SecretsForm): Promise<string>;
	/** As `changedPaths`. */
	changedPaths(records: ComparedRecords): Promise<readonly string[] | undefined>;
}

/** Returns the thread that opens records of a size in bytes. Undefined if this thread opens them. */
export function threadFor(large: LargeRecords | undefined, bytes: number): LargeRecords | undefined {
	return large !== undefined && bytes >= large.minLargeBytes ? large : undefined;
}
