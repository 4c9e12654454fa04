import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import { conditionsOf } from "../conversations/read/filter.ts";
import { decodeSummary } from "../conversations/read/records.ts";
import { type Condition, microsecondsOf } from "../store/condition.ts";
import type { Store } from "../store/store.ts";
import { RULES, type Settings } from "./spending.ts";

export type Rule = (typeof RULES)[number];

const MAX_FOUND = 1_000;
const MICROSECONDS_PER_MINUTE = 60_000_000;

export interface Found {
	readonly conversationId: string;
	/** The same while it goes on. */
	readonly occasion: string;
	/** What a chat is told: the end of a sentence about the conversation. */
	readonly text: string;
}

type RulesStore = Pick<Store, "listConversations" | "tables">;

/** Returns what a rule is about; undefined for a budget with an amount. */
export function ruleOf(settings: Settings): Rule | undefined {
	return RULES.find((rule) => settings[rule] !== undefined);
}

/**
 * Returns the conversations to which a rule applies.
 *
 * @param now milliseconds since the Unix epoch
 */
export async function foundBy(
	store: RulesStore,
	settings: Settings,
	rule: Rule,
	now: number,
): Promise<readonly Found[]> {
	const { owner, filter, silentMinutes = 0, waitingMinutes = 0, gapMinutes = 0, stalledEvents = 0n } = settings;
	const list = async (...more: readonly Condition[]) => {
		const ofOwner: Condition[] = owner === "" ? [] : [{ kind: "equal", field: "owner", value: owner }];
		const conditions = [...ofOwner, ...conditionsOf(filter), ...more];
		const found = await store.listConversations({ conditions, limit: MAX_FOUND, withRecords: false });
		return found.map(({ conversationId, summary }) => ({ conversationId, summary: decodeSummary(summary) }));
	};
	const status = (value: ConversationExecutionStatus): Condition => ({
		kind: "equal",
		field: "executionStatus",
		value,
	});
	const before = (minutes: number) => BigInt(Math.round(now * 1000 - minutes * MICROSECONDS_PER_MINUTE));
	const quietSince = (minutes: number): Condition => ({ kind: "time", field: "activityAt", to: before(minutes) });
	const told = (text: string, occasionOf: (summary: ConversationSummary) => bigint | undefined) => {
		return ({ conversationId, summary }: { conversationId: string; summary: ConversationSummary }): Found => {
			return { conversationId, text, occasion: String(occasionOf(summary) ?? "") };
		};
	};
	const lastActivity = ({ lastActivityAt, updatedAt }: ConversationSummary) =>
		microsecondsOf(lastActivityAt ?? updatedAt);
	switch (rule) {
		case "silentMinutes":
			return (await list(status(ConversationExecutionStatus.RUNNING), quietSince(silentMinutes))).map(
				told(`runs, and has been silent for more than ${silentMinutes} minutes`, lastActivity),
			);
		case "waitingMinutes":
			return (await list(status(ConversationExecutionStatus.WAITING_FOR_CONFIRMATION), quietSince(waitingMinutes))).map(
				told(`has waited for more than ${waitingMinutes} minutes`, lastActivity),
			);
		case "gapMinutes":
			return (await list({ kind: "gaps", value: true, before: before(gapMinutes) })).map(
				told(`has missed something for more than ${gapMinutes} minutes`, ({ gaps }) => microsecondsOf(gaps?.since)),
			);
		case "stuck":
			return (await list(status(ConversationExecutionStatus.STUCK))).map(
				told("is stuck", ({ runStartedAt }) => microsecondsOf(runStartedAt)),
			);
		case "stalledEvents": {
			const running = await list(status(ConversationExecutionStatus.RUNNING));
			const ids = running.map(({ conversationId }) => conversationId);
			const stalled = await store.tables.read.listStalled({ ids, events: Number(stalledEvents) });
			const text = `runs, and had more than ${stalledEvents} events without a new leaf`;
			return stalled.map(({ conversationId, leaf }) => ({ conversationId, text, occasion: leaf }));
		}
	}
}
