import type { KeyObject } from "node:crypto";
import type { AppliedUpdates, ApplyRequest, PreparedBatch } from "../events/live-records.ts";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import type { NewUpdate, StoredRecord } from "../store/store.ts";

/** The `workerData` of the intake threads. */
export interface IntakeData {
	readonly encryptionKeys: readonly KeyObject[];
	/** Time zone of the events' times: `UTC` or a name of the IANA time zone database. */
	readonly eventTimeZone: string;
}

/** The calls that the intake threads answer. */
export type IntakeCalls = {
	fromJson(body: Uint8Array): NewUpdate;
	fromRequest(request: Uint8Array): NewUpdate;
	eventsFromJson(request: { readonly conversationId: string; readonly body: Uint8Array }): PreparedBatch;
	eventsFromRequest(request: Uint8Array): PreparedBatch;
	applyEvents(request: ApplyRequest): AppliedUpdates;
	isSame(records: { readonly stored: Uint8Array; readonly arriving: Uint8Array }): boolean;
	openEncoded(request: { readonly record: StoredRecord; readonly form: SecretsForm }): Uint8Array;
	openJson(request: { readonly record: StoredRecord; readonly form: SecretsForm }): string;
	close(argument: undefined): void;
};
