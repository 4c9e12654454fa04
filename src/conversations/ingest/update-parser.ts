import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import { ServiceError } from "../../errors.ts";
import type { RecordFormat } from "../../record/record-format.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import { encodeSummary, summarize } from "../../record/summary.ts";
import { decodeIngestRequest } from "../../record/validation/message-size.ts";
import type { NewUpdate } from "../../store/updates.ts";

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
