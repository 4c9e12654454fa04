import { create } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { ConversationExecutionStatus as Status } from "../../../gen/conversations/v1/conversation_pb.js";
import type { Sender } from "../../../gen/conversations/v1/conversation_sender_service_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { invalid } from "../../errors.ts";
import type { CountGroup } from "../../store/conversation-lists.ts";
import { LASTING_GAP } from "../../store/gaps.ts";
import type { Store } from "../../store/store.ts";
import { conditionsOf, nameOfStatus, wellFormed } from "./filter.ts";

export interface CountRequest {
	/** Empty: all conversations together. */
	readonly groupBy: string;
	readonly filter?: ConversationFilter | undefined;
}

const MAX_COUNTS = 10_000;
const TAG = "tag:";
/** What can be counted by, besides the tags of a key; empty for the number of all. */
export const GROUPS: ReadonlyMap<string, CountGroup | undefined> = new Map([
	["", undefined],
	["status", { by: "executionStatus" }],
	["agent_kind", { by: "agentKind" }],
	["model", { by: "model" }],
	["sender", { by: "sender" }],
	["owner", { by: "owner" }],
	["tag_key", { by: "tagKey" }],
]);

type CountedStore = Pick<Store, "countConversations">;

/**
 * Counts conversations by a value of their current record, the largest count first. Throws `invalid_argument` that names the
 * field.
 */
export async function countConversations(store: CountedStore, { groupBy, filter }: CountRequest) {
	const group = groupOf(groupBy);
	const conditions = conditionsOf(filter);
	const { counts, total } = await store.countConversations({ conditions, group, limit: MAX_COUNTS });
	return {
		counts: counts.map(({ value, count }) => ({
			value: typeof value === "number" ? nameOfStatus(value) : value,
			count: BigInt(count),
		})),
		total: BigInt(total),
	};
}

/** Minutes without activity after which a conversation that runs or waits counts as silent. */
const SILENT_MINUTES = 10;

/** Counts conversations that run or wait, and have had no activity for {@link SILENT_MINUTES}. */
export async function countSilent(store: CountedStore, now = Date.now()): Promise<bigint> {
	const filter = create(ConversationFilterSchema, {
		executionStatuses: [Status.RUNNING, Status.WAITING_FOR_CONFIRMATION],
		activityTo: timestampFromMs(now - SILENT_MINUTES * 60_000),
	});
	return (await countConversations(store, { groupBy: "", filter })).total;
}

/**
 * Counts running conversations that have had no activity for {@link SILENT_MINUTES}, and whose sender has posted others in
 * this time: they may have ended without a post that arrived.
 */
export async function countUnheard(
	store: CountedStore,
	senders: readonly Pick<Sender, "name" | "lastPostAt">[],
	now = Date.now(),
): Promise<bigint> {
	const since = now - SILENT_MINUTES * 60_000;
	const filter = create(ConversationFilterSchema, {
		executionStatus: Status.RUNNING,
		activityTo: timestampFromMs(since),
	});
	const heard = new Set(
		senders.flatMap(({ name, lastPostAt: at }) => (at !== undefined && timestampMs(at) >= since ? [name] : [])),
	);
	const { counts } = await countConversations(store, { groupBy: "sender", filter });
	return counts.reduce((sum, { value, count }) => (heard.has(value) ? sum + count : sum), 0n);
}

/** Counts conversations with gaps: those with a gap that has lasted for {@link LASTING_GAP}, and the others. */
export async function countGaps(
	store: CountedStore,
	now = Date.now(),
): Promise<{ readonly lasting: number; readonly recent: number }> {
	const count = async (before?: bigint) => {
		const condition = { kind: "gaps", value: true, before } as const;
		return (await store.countConversations({ conditions: [condition], group: undefined, limit: 1 })).total;
	};
	const lasting = await count(BigInt(now - LASTING_GAP) * 1000n);
	return { lasting, recent: Math.max(0, (await count()) - lasting) };
}

function groupOf(groupBy: string): CountGroup | undefined {
	if (groupBy.startsWith(TAG) && groupBy !== TAG)
		return { by: "tag", key: wellFormed(groupBy.slice(TAG.length), "group_by") };
	if (!GROUPS.has(groupBy))
		throw invalid("group_by", "must be status, agent_kind, model, sender, owner, tag_key or tag:KEY");
	return GROUPS.get(groupBy);
}
