import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import type { CallSignal } from "../../call-signal.ts";
import { ServiceError, withConversation } from "../../errors.ts";
import { releaseWhole } from "../../memory.ts";
import type { RecordFormat } from "../../record/record-format.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import { encodeSummary, summarize } from "../../record/summary.ts";
import { decodeIngestRequest } from "../../record/validation/message-size.ts";
import type { AppendedUpdate, NewUpdate } from "../../store/entries.ts";
import { ownerRefusal, type Poster } from "../../store/owners.ts";
import type { Store } from "../../store/store.ts";
import type { EventIngest } from "./event-ingest.ts";

/** Reads updates from request bodies as UpdateParser does, here or on another thread. */
export interface Intake {
	/** @param signal once it has fired, the body need not be read */
	fromJson(body: Buffer, signal: CallSignal): Promise<NewUpdate>;
	/** @param signal once it has fired, the request need not be read */
	fromRequest(request: Uint8Array, signal: CallSignal): Promise<NewUpdate>;
}

/** Stores conversation updates, for every transport that receives them. */
export class Ingest {
	readonly #store: Pick<Store, "append" | "getOwnership">;
	readonly #intake: Intake;
	readonly #events: Pick<EventIngest, "applyUnappliedEvents">;

	/** @param events applies later stored events to a posted record */
	constructor(
		store: Pick<Store, "append" | "getOwnership">,
		intake: Intake,
		events: Pick<EventIngest, "applyUnappliedEvents">,
	) {
		this.#store = store;
		this.#intake = intake;
		this.#events = events;
	}

	/**
	 * Stores a record that arrived as JSON. Resolves when it is on disk and later stored events have been applied to it.
	 * Then the memory of the body is released; after a failure the body is intact.
	 *
	 * @param signal nothing is stored if it fires before the record has been checked; later as for `Store.append`
	 * @param receivedAt when the record arrived, in microseconds since the Unix epoch. Default: now
	 * @throws ServiceError `invalid_record`; `permission_denied` when the conversation belongs to another owner; `unavailable` or `internal` when nothing of the record was stored, or when
	 *   it was stored but the events could not be applied, which is done later
	 */
	async json(body: Buffer, poster: Poster, signal: CallSignal, receivedAt?: bigint): Promise<AppendedUpdate> {
		const update = await this.#checked(this.#intake.fromJson(body, signal), poster);
		const appended = await this.#append({ ...update, poster, receivedAt: receivedAt ?? update.receivedAt }, signal);
		releaseWhole(body);
		return appended;
	}

	/**
	 * Stores the record of an encoded IngestConversationRequest. Resolves as `json` does. The memory of the request is
	 * released as by `json`.
	 *
	 * @throws ServiceError as `json` does, and `invalid_argument` when the bytes are no such message
	 */
	async request(request: Uint8Array, poster: Poster, signal: CallSignal, receivedAt?: bigint): Promise<AppendedUpdate> {
		const update = await this.#checked(this.#intake.fromRequest(request, signal), poster);
		const appended = await this.#append({ ...update, poster, receivedAt: receivedAt ?? update.receivedAt }, signal);
		releaseWhole(request);
		return appended;
	}

	/**
	 * Stores a record that was fetched from the agent server, if its conversation has none or begins again with it.
	 * Otherwise it counts as a duplicate. Resolves as `json` does.
	 *
	 * @throws ServiceError as `json` does
	 */
	async fetched(body: Buffer, poster: Poster, signal: CallSignal): Promise<AppendedUpdate> {
		const update = await this.#intake.fromJson(body, signal);
		return await this.#append({ ...update, poster, isFetched: true }, signal);
	}

	/** Awaits a record. For a key with an owner, an invalid one of another owner's conversation is refused as a valid one. */
	async #checked(record: Promise<NewUpdate>, poster: Poster): Promise<NewUpdate> {
		try {
			return await record;
		} catch (error) {
			if (poster.owner === undefined || !(error instanceof ServiceError)) throw error;
			const { conversationId } = error;
			if (conversationId === undefined) throw error;
			throw ownerRefusal(poster, await this.#store.getOwnership(conversationId)) ?? error;
		}
	}

	async #append(update: NewUpdate, signal: CallSignal): Promise<AppendedUpdate> {
		// The update must not be used after `append`, which takes over its memory.
		const { conversationId } = update;
		try {
			const appended = await this.#store.append(update, signal);
			if (appended.hasUnappliedEvents) await this.#events.applyUnappliedEvents(conversationId);
			return appended;
		} catch (error) {
			throw withConversation(error, conversationId);
		}
	}
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
	fromJson(body: Buffer): NewUpdate {
		return this.fromRecord(this.#format.parse(body));
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
