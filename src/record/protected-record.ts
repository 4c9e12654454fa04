/** Versions of the rules by which a stored record was written; 0 where different versions were merged. */
export interface RecordVersions {
	/** Fingerprint of the rules by which its secrets were redacted; 0 when it holds ciphertexts. */
	readonly redactionVersion: number;
	/** Fingerprint of the member names of the release that wrote it: `RecordFormat.schemaVersion`. */
	readonly schemaVersion: number;
}

/** A record as the store keeps it: encoded, and without a secret in plain text. */
export interface ProtectedRecord extends RecordVersions {
	readonly bytes: Uint8Array;
}
