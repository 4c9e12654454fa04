import { fromBinary, toBinary } from "@bufbuild/protobuf";
import {
	type IngestConversationRequest,
	IngestConversationRequestSchema,
} from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { ServiceError } from "../../errors.ts";
import type { RecordFormat } from "../../record/record-format.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import { type EncodedUpdate, encodeUpdate } from "../../store/encoded-update.ts";
import { columnsOf } from "./columns.ts";
import { summarize } from "./summary.ts";

/** Makes updates of records in any of the forms in which they arrive: the one way from bytes to the store. */
export class UpdateMaker {
	readonly #format: RecordFormat;
	readonly #vault: RecordVault;

	constructor(format: RecordFormat, vault: RecordVault) {
		this.#format = format;
		this.#vault = vault;
	}

	/** @throws ServiceError `invalid_record` when `body` is not JSON, or its record breaks rules */
	fromJson(body: Buffer): EncodedUpdate {
		return this.make(this.#format.parse(body));
	}

	/**
	 * @param request an encoded IngestConversationRequest
	 * @throws ServiceError `invalid_argument` when it is none, `invalid_record` when its record breaks rules
	 */
	fromRequest(request: Uint8Array): EncodedUpdate {
		const { conversation } = decodeRequest(request);
		if (conversation === undefined)
			throw new ServiceError("invalid_record", "the request has no conversation", {
				violations: [{ path: [], type: "missing", message: "Field required" }],
			});
		return this.make(this.#format.fromMessage(conversation));
	}

	/** @param record a checked record with its defaults filled in; it is changed */
	make(record: ConversationInfo): EncodedUpdate {
		const summary = summarize(record);
		const { bytes, redactionVersion } = this.#vault.protect(record);
		return encodeUpdate({
			conversationId: summary.id,
			digest: undefined,
			seal: redactionVersion,
			record: bytes,
			summary: toBinary(ConversationSummarySchema, summary),
			columns: columnsOf(summary),
			receivedAt: BigInt(Date.now()) * 1000n,
		});
	}
}

function decodeRequest(request: Uint8Array): IngestConversationRequest {
	try {
		return fromBinary(IngestConversationRequestSchema, request);
	} catch (cause) {
		const { typeName } = IngestConversationRequestSchema;
		throw new ServiceError("invalid_argument", `The request cannot be read as a ${typeName}`, { cause });
	}
}
