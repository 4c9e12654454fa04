import type { ConversationSummary } from "../../../gen/conversations/v1/summary_pb.js";
import { toMicroseconds } from "../../record/json/scalars.ts";
import type { RecordColumns } from "../../store/store.ts";
import { statusName } from "../status.ts";

/** What lists and watches filter a conversation by, from the summary of its record. */
export function columnsOf(summary: ConversationSummary): RecordColumns {
	return {
		status: statusName(summary.executionStatus),
		agentKind: summary.agentKind,
		model: summary.model,
		title: summary.title,
		parentId: summary.parentConversationId,
		createdAt: summary.createdAt && toMicroseconds(summary.createdAt),
		updatedAt: summary.updatedAt && toMicroseconds(summary.updatedAt),
		tags: summary.tags,
	};
}
