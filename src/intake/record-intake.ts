import { UpdateParser } from "../conversations/ingest/update-parser.ts";
import { type ComparedRecords, changedPaths } from "../conversations/read/comparable-record.ts";
import { recordJson } from "../conversations/read/get.ts";
import type { EventFormat } from "../events/event-format.ts";
import { type ApplyRequest, LiveRecords } from "../events/live-records.ts";
import { compact } from "../memory.ts";
import type { RecordFormat } from "../record/record-format.ts";
import type { RecordVault } from "../record/secrets/record-vault.ts";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import type { StoredRecord } from "../store/store.ts";

/** The work of the intake, wherever it is done. */
export type RecordIntake = ReturnType<typeof recordIntake>;

interface EventBody {
	readonly conversationId: string;
	readonly body: Uint8Array;
}

interface ShownRecord {
	readonly record: StoredRecord;
	readonly form: SecretsForm;
}

/** Returns the functions that parse, check, protect, compare and open records and events. */
export function recordIntake(format: RecordFormat, vault: RecordVault, events: EventFormat) {
	const parser = new UpdateParser(format, vault);
	const live = new LiveRecords(format, vault, events);
	return {
		/** As `UpdateParser.fromJson`. */
		fromJson: (body: Uint8Array) => parser.fromJson(bufferOf(body)),
		/** As `UpdateParser.fromRequest`. */
		fromRequest: (request: Uint8Array) => parser.fromRequest(request),
		/** As `EventFormat.parse`, then `LiveRecords.applyToHeld`. */
		eventsFromJson: ({ conversationId, body }: EventBody) =>
			live.applyToHeld(events.parse(conversationId, bufferOf(body))),
		/** As `EventFormat.fromRequest`, then `LiveRecords.applyToHeld`. */
		eventsFromRequest: (request: Uint8Array) => live.applyToHeld(events.fromRequest(request)),
		/** As `LiveRecords.apply`. */
		applyEvents: (request: ApplyRequest) => live.apply(request),
		/** As `RecordVault.isSame`. */
		isSame: ({ stored, arriving }: { readonly stored: Uint8Array; readonly arriving: Uint8Array }) =>
			vault.isSame(stored, arriving),
		/** As `RecordVault.openEncoded`. */
		openEncoded: ({ record, form }: ShownRecord) => compact(vault.openEncoded(record.bytes, record, form)),
		/** As `recordJson`. */
		openJson: ({ record, form }: ShownRecord) => recordJson(format, vault, record, form),
		/** As `changedPaths`. */
		changedPaths: (records: ComparedRecords) => changedPaths(vault, records),
	};
}

function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
	return Buffer.from(buffer, byteOffset, byteLength);
}
