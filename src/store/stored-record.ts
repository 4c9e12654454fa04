/** An encoded record without secrets in plain text, and the versions of the rules that it was encoded by. */
export interface StoredRecord {
	readonly bytes: Uint8Array;
	/** Version of the redaction rules, a safe integer; 0 when it holds ciphertexts, or parts of different versions. */
	readonly redactionVersion: number;
	/** Version of the schema, a safe integer; 0 when it holds parts of different versions. */
	readonly schemaVersion: number;
}

/** Stands for a record or an event that cannot be read from the disk, or differs from what was written. */
export interface Unreadable {
	/** The engine's error message, for the log. */
	readonly unreadable: string;
}
