import { setImmediate } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { microsecondsOf } from "../../store/condition.ts";
import { comparableTime } from "../../store/ordering.ts";
import type { Store } from "../../store/store.ts";
import type { StoredUpdate } from "../../store/updates.ts";
import {
	countUsage,
	type LedgerRow,
	type StoredUsage,
	statsOfRecord,
	type UsageState,
	type WrittenUsage,
} from "../../store/usage-plan.ts";

/** Maximum number of updates, and of bytes of their records, that are in memory together. */
const STEP = { limit: 50, maxBytes: 2 ** 20 };

/** The usage of a conversation by its stored updates and events. */
export interface ReplayedUsage {
	/** Undefined when the conversation has no usage. */
	readonly state: UsageState | undefined;
	readonly rows: readonly LedgerRow[];
	/** Whether all updates were read. */
	readonly isReadable: boolean;
}

/**
 * Counts the stored updates of a conversation anew, in their order, as they were counted when they arrived. Updates that
 * pruning has removed are missing: what they showed first counts at the time of the first update that is left, unless the
 * record tells the time.
 */
export async function replayUsage(
	store: Pick<Store, "updates" | "getOrigin">,
	conversationId: string,
	responses: StoredUsage["responses"],
): Promise<ReplayedUsage> {
	const { sender = "", owner = "" } = (await store.getOrigin(conversationId)) ?? {};
	const byKey = Map.groupBy(responses, ({ key }) => key);
	const written: WrittenUsage = { states: new Map(), rows: new Map() };
	let state: UsageState | undefined;
	let lifeBeganAt: bigint | undefined;
	let isReadable = true;
	let isFirst = true;
	for (let after = 0n; ; ) {
		const updates = await store.updates.list({ after, conversationId, ...STEP, withRecords: true });
		const last = updates.at(-1);
		if (last === undefined) break;
		for (const update of updates) {
			// Requests that wait are answered in between.
			await setImmediate();
			if (!update.current) continue;
			const stats = statsOf(update, isFirst);
			isFirst = false;
			if (stats === undefined) {
				isReadable = false;
				continue;
			}
			const { receivedAt, origin } = update;
			if (origin !== UpdateOrigin.EVENTS) lifeBeganAt = comparableTime(stats.createdAt, receivedAt) ?? lifeBeganAt;
			const { agentKind, updatedAt, lastActivityAt } = fromBinary(ConversationSummarySchema, update.summary);
			const shownAt = origin === UpdateOrigin.EVENTS ? lastActivityAt : updatedAt;
			const time = comparableTime(microsecondsOf(shownAt), receivedAt) ?? receivedAt;
			const current = { ...stats, conversationId, lifeBeganAt, agentKind, sender, owner, time };
			state = countUsage(state, current, (key) => timeAsOf(byKey.get(key), receivedAt), written);
		}
		after = last.sequence;
	}
	return { state, rows: [...written.rows.values()], isReadable };
}

/** Returns the stats of an update as they were counted; undefined when its record cannot be read. */
function statsOf({ record, origin }: StoredUpdate, isFirst: boolean) {
	if (record === undefined || "unreadable" in record) return undefined;
	const stats = statsOfRecord(record.bytes);
	// A version that events made is stored without what they did not change.
	return stats && origin === UpdateOrigin.EVENTS && !isFirst
		? { ...stats, createdAt: undefined, isFork: false }
		: stats;
}

/** Returns the time of a response by the events that had arrived at a time; undefined if there was none. */
function timeAsOf(responses: StoredUsage["responses"] | undefined, time: bigint): bigint | undefined {
	const times = responses?.flatMap(({ happenedAt, receivedAt }) => (receivedAt <= time ? [happenedAt] : [])) ?? [];
	return times.reduce<bigint | undefined>((first, at) => (first === undefined || at < first ? at : first), undefined);
}
