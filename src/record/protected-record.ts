/** By which rules a stored record was written. */
export interface RecordVersions {
	/** The rules by which its secrets were redacted; 0 when it holds ciphertexts. */
	readonly redactionVersion: number;
	/** The names of members that its release had: `RecordFormat.schemaVersion`. */
	readonly schemaVersion: number;
}

/** A record as the store keeps it: encoded, with no secret in plain text. */
export interface ProtectedRecord extends RecordVersions {
	readonly bytes: Uint8Array;
}
