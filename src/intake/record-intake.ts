import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import { ServiceError } from "../errors.ts";
import type { EventFormat } from "../events/event-format.ts";
import { type ApplyRequest, type FetchedRequest, RecordUpdater } from "../events/record-updater.ts";
import { bufferOf } from "../memory.ts";
import type { RecordFormat } from "../record/record-format.ts";
import type { RecordVault } from "../record/secrets/record-vault.ts";
import { encodeSummary, summarize } from "../record/summary.ts";
import { decodeIngestRequest } from "../record/validation/message-size.ts";
import type { NewUpdate } from "../store/entries.ts";
import type { Calls } from "../threads/protocol.ts";

/** The work of the intake, wherever it is done. */
export type RecordIntake = ReturnType<typeof recordIntake>;

/** The work of the intake, in this thread or in another one. A body need not be read once the signal of its call has fired. */
export type IntakeCalls = Calls<RecordIntake>;

/** A batch of events. */
export interface EventBody {
	readonly conversationId: string;
	readonly body: Uint8Array;
	/** Name of the sender, which decides the time zone of the events. */
	readonly sender: string;
	/** When the batch arrived, in microseconds since the Unix epoch; undefined: now. */
	readonly receivedAt?: bigint | undefined;
}

export interface EventRequest extends Omit<EventBody, "conversationId" | "body"> {
	readonly request: Uint8Array;
}

/** Returns the functions that parse, check, protect and compare records and events. */
export function recordIntake(format: RecordFormat, vault: RecordVault, events: EventFormat) {
	const parser = new UpdateParser(format, vault);
	const updater = new RecordUpdater(format, vault, events);
	return {
		fromJson: (body: Uint8Array) => parser.fromJson(body),
		fromRequest: (request: Uint8Array) => parser.fromRequest(request),
		/** As `EventFormat.parse`, then `RecordUpdater.applyToCached`. */
		eventsFromJson: ({ conversationId, body, sender, receivedAt }: EventBody) =>
			updater.applyToCached(events.parse(conversationId, bufferOf(body), sender, receivedAt)),
		/** As `EventFormat.fromRequest`, then `RecordUpdater.applyToCached`. */
		eventsFromRequest: ({ request, sender, receivedAt }: EventRequest) =>
			updater.applyToCached(events.fromRequest(request, sender, receivedAt)),
		applyEvents: (request: ApplyRequest) => updater.apply(request),
		applyFetched: (request: FetchedRequest) => updater.applyFetched(request),
		isSame: ({ stored, arriving }: { readonly stored: Uint8Array; readonly arriving: Uint8Array }) =>
			vault.isSame(stored, arriving),
	};
}

/** Reads updates from request bodies: decodes the record, checks it, protects its secrets and encodes it. */
export class UpdateParser {
	readonly #format: RecordFormat;
	readonly #vault: RecordVault;

	constructor(format: RecordFormat, vault: RecordVault) {
		this.#format = format;
		this.#vault = vault;
	}

	/** @throws ServiceError `invalid_record` when `body` is not JSON or its record breaks rules */
	fromJson(body: Uint8Array): NewUpdate {
		return this.fromRecord(this.#format.parse(bufferOf(body)));
	}

	/**
	 * @param request an encoded IngestConversationRequest
	 * @throws ServiceError `invalid_argument` when it is no such message, `invalid_record` when its record breaks rules
	 */
	fromRequest(request: Uint8Array): NewUpdate {
		const { conversation } = decodeIngestRequest(IngestConversationRequestSchema, request);
		if (conversation === undefined)
			throw new ServiceError("invalid_record", "the request has no conversation", {
				violations: [{ path: [], type: "missing", message: "Field required" }],
			});
		return this.fromRecord(this.#format.fromMessage(conversation));
	}

	/** @param record a checked record with its defaults filled in; its secrets are redacted in place */
	fromRecord(record: ConversationInfo): NewUpdate {
		const stored = this.#vault.protect(record);
		const summary = summarize(record);
		return {
			conversationId: summary.id,
			receivedAt: BigInt(Date.now()) * 1000n,
			summary: encodeSummary(summary),
			record: stored,
		};
	}
}
