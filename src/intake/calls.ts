import type { KeyObject } from "node:crypto";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import type { NewUpdate, StoredRecord } from "../store/store.ts";

/** What the intake's threads are started with. */
export interface IntakeData {
	readonly encryptionKeys: readonly KeyObject[];
}

/** The calls that the intake's threads answer. */
export type IntakeCalls = {
	fromJson(body: Uint8Array): NewUpdate;
	fromRequest(request: Uint8Array): NewUpdate;
	isSame(records: { readonly stored: Uint8Array; readonly arriving: Uint8Array }): boolean;
	openEncoded(request: { readonly record: StoredRecord; readonly form: SecretsForm }): Uint8Array;
	openJson(request: { readonly record: StoredRecord; readonly form: SecretsForm }): string;
	close(argument: undefined): void;
};
