import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import { ServiceError } from "../errors.ts";
import type { EventFormat, ParsedEvents } from "../events/event-format.ts";
import { type ApplyRequest, type PreparedBatch, RecordUpdater } from "../events/record-updater.ts";
import { bufferOf } from "../memory.ts";
import { type ExactJson, isJsonObject, memberOf, parsePointer, setMember } from "../record/json/json-value.ts";
import type { RecordFormat } from "../record/record-format.ts";
import type { RecordVault } from "../record/secrets/record-vault.ts";
import { encodeSummary, summarize } from "../record/summary.ts";
import { decodeIngestRequest } from "../record/validation/message-size.ts";
import { contentOf } from "../search/event-texts.ts";
import { microsecondsOf } from "../store/condition.ts";
import type { NewUpdate } from "../store/entries.ts";
import { namedEvent } from "../store/gaps.ts";
import { factsOf } from "../store/head.ts";
import type { EventContent } from "../store/text-index.ts";
import type { Calls } from "../threads/protocol.ts";
import { REDACTED } from "../userinfo.ts";

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

export interface FetchedRecord {
	/** JSON of a record that was fetched from the agent server. */
	readonly body: Uint8Array;
	/** The stored record of the conversation; undefined when it has none. */
	readonly present: Uint8Array | undefined;
}

/** Returns the functions that parse, check, protect and compare records and events. */
export function recordIntake(format: RecordFormat, vault: RecordVault, events: EventFormat) {
	const parser = new UpdateParser(format, vault);
	const updater = new RecordUpdater(format, vault, events);
	const prepare = (parsed: ParsedEvents): PreparedBatch => {
		const indexed = indexedOf(parsed);
		const prepared = updater.applyToCached(parsed);
		return { ...prepared, batch: { ...prepared.batch, indexed } };
	};
	return {
		fromJson: (body: Uint8Array) => parser.fromJson(body),
		fromRequest: (request: Uint8Array) => parser.fromRequest(request),
		fromFetched: (record: FetchedRecord) => parser.fromFetched(record),
		/** As `EventFormat.parse`, then `RecordUpdater.applyToCached`. Adds what is indexed. */
		eventsFromJson: ({ conversationId, body, sender, receivedAt }: EventBody) =>
			prepare(events.parse(conversationId, bufferOf(body), sender, receivedAt)),
		/** As `eventsFromJson`, with `EventFormat.fromRequest`. */
		eventsFromRequest: ({ request, sender, receivedAt }: EventRequest) =>
			prepare(events.fromRequest(request, sender, receivedAt)),
		applyEvents: (request: ApplyRequest) => updater.apply(request),
		isSame: ({ stored, arriving }: { readonly stored: Uint8Array; readonly arriving: Uint8Array }) =>
			vault.isSame(stored, arriving),
	};
}

/** Returns what is indexed of the events of a batch; undefined if one has a secret, of which this JSON has the ciphertext. */
function indexedOf({ batch, json }: ParsedEvents): EventContent[] | undefined {
	return batch.events.some(({ secrets }) => secrets.length > 0) ? undefined : json.map(contentOf);
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

	/**
	 * Reads a fetched record. Where the agent server's API hides a secret, the stored record of the same life of the
	 * conversation has it. Throws as {@link fromJson} does, and `data_loss` when the stored record cannot be read or decrypted.
	 */
	fromFetched({ body, present }: FetchedRecord): NewUpdate {
		const record = this.#format.parse(bufferOf(body));
		const stored = present && this.#vault.open(present, "plaintext");
		if (stored === undefined || stored.id !== record.id) return this.fromRecord(record);
		const [began, before] = [record, stored].map(({ createdAt }) => microsecondsOf(createdAt));
		if (began !== undefined && before !== undefined && began !== before) return this.fromRecord(record);
		const [json, kept] = [this.#format.toJson(record), this.#format.toJson(stored)];
		for (const pointer of this.#vault.secretsIn(stored)) keepSecret(json, kept, parsePointer(pointer) ?? []);
		return this.fromRecord(this.#format.fromJson(json));
	}

	/** @param record a checked record with its defaults filled in; its secrets are redacted in place */
	fromRecord(record: ConversationInfo): NewUpdate {
		const stored = this.#vault.protect(record);
		const summary = summarize(record);
		return {
			conversationId: summary.id,
			receivedAt: BigInt(Date.now()) * 1000n,
			summary: encodeSummary(summary),
			facts: factsOf(summary),
			leaf: namedEvent(record.leafEventId),
			record: stored,
		};
	}
}

/**
 * Puts a secret of a stored record to the same place of a fetched one. It replaces a placeholder, a null and a missing
 * member, and nothing else.
 */
function keepSecret(fetched: ExactJson, stored: ExactJson, path: readonly string[]): void {
	let [to, from]: [ExactJson | undefined, ExactJson | undefined] = [fetched, stored];
	for (const [index, token] of path.entries()) {
		if (to === undefined || to === null || from === undefined || from === null) return;
		if (memberOf(to, "kind") !== memberOf(from, "kind")) return;
		const [next, kept]: [ExactJson | undefined, ExactJson | undefined] = [memberOf(to, token), memberOf(from, token)];
		if (index === path.length - 1) {
			if (kept !== undefined && (next === undefined || next === null || next === REDACTED)) putChild(to, token, kept);
			return;
		}
		// The agent server leaves out a map of which all values are secret.
		if ((next === undefined || next === null) && index === path.length - 2 && isJsonObject(kept))
			putChild(to, token, {});
		[to, from] = [memberOf(to, token), kept];
	}
}

function putChild(json: ExactJson, token: string, value: ExactJson): void {
	if (Array.isArray(json)) {
		if (Number(token) < json.length) json[Number(token)] = value;
	} else if (isJsonObject(json)) setMember(json, token, value);
}
