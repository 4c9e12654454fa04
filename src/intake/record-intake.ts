import { UpdateParser } from "../conversations/ingest/ingest.ts";
import type { EventFormat } from "../events/event-format.ts";
import { type ApplyRequest, type FetchedRequest, RecordUpdater } from "../events/record-updater.ts";
import type { RecordFormat } from "../record/record-format.ts";
import type { RecordVault } from "../record/secrets/record-vault.ts";

/** The work of the intake, wherever it is done. */
export type RecordIntake = ReturnType<typeof recordIntake>;

interface EventBody {
	readonly conversationId: string;
	readonly body: Uint8Array;
	/** Name of the sender. */
	readonly sender: string;
	/** When the batch arrived, in microseconds since the Unix epoch; undefined: now. */
	readonly receivedAt?: bigint | undefined;
}

interface EventRequest extends Omit<EventBody, "conversationId" | "body"> {
	readonly request: Uint8Array;
}

/** Returns the functions that parse, check, protect and compare records and events. */
export function recordIntake(format: RecordFormat, vault: RecordVault, events: EventFormat) {
	const parser = new UpdateParser(format, vault);
	const updater = new RecordUpdater(format, vault, events);
	return {
		/** As `UpdateParser.fromJson`. */
		fromJson: (body: Uint8Array) => parser.fromJson(bufferOf(body)),
		/** As `UpdateParser.fromRequest`. */
		fromRequest: (request: Uint8Array) => parser.fromRequest(request),
		/** As `EventFormat.parse`, then `RecordUpdater.applyToCached`. */
		eventsFromJson: ({ conversationId, body, sender, receivedAt }: EventBody) =>
			updater.applyToCached(events.parse(conversationId, bufferOf(body), sender, receivedAt)),
		/** As `EventFormat.fromRequest`, then `RecordUpdater.applyToCached`. */
		eventsFromRequest: ({ request, sender, receivedAt }: EventRequest) =>
			updater.applyToCached(events.fromRequest(request, sender, receivedAt)),
		/** As `RecordUpdater.apply`. */
		applyEvents: (request: ApplyRequest) => updater.apply(request),
		/** As `RecordUpdater.applyFetched`. */
		applyFetched: (request: FetchedRequest) => updater.applyFetched(request),
		/** As `RecordVault.isSame`. */
		isSame: ({ stored, arriving }: { readonly stored: Uint8Array; readonly arriving: Uint8Array }) =>
			vault.isSame(stored, arriving),
	};
}

export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
	return Buffer.from(buffer, byteOffset, byteLength);
}
