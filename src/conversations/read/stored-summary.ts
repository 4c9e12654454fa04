import { fromBinary } from "@bufbuild/protobuf";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { ServiceError } from "../../errors.ts";
import { deriveEncoder } from "../../record/json/encode.ts";
import type { ExactJson } from "../../record/json/json-value.ts";
import { planMessage } from "../../record/plan/plan.ts";

/** Returns the JSON form of a summary. */
export const encodeSummary: (summary: ConversationSummary) => ExactJson = deriveEncoder(
	planMessage(ConversationSummarySchema),
);

/** @throws ServiceError `data_loss` when the bytes are no encoded summary */
export function decodeSummary(bytes: Uint8Array): ConversationSummary {
	try {
		return fromBinary(ConversationSummarySchema, bytes);
	} catch (cause) {
		throw new ServiceError("data_loss", "The stored summary cannot be read", { cause });
	}
}
