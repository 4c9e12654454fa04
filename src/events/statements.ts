import type { Microseconds } from "../record/json/scalars.ts";
import { isJsonMembers, type Json, type JsonMembers } from "./json.ts";

/** What reading statements needs of an event. */
export interface TimedEvent {
	readonly id: string;
	readonly kind: string;
	/** When it happened, as {@link eventTime} understands it. */
	readonly time: Microseconds;
	/** When it arrived. Events of one batch have the same, and others another one. */
	readonly receivedAt: Microseconds;
	/** The event's members beyond its envelope. */
	readonly members: JsonMembers;
}

/** A member of the record and the value that an event says it has. */
export interface Statement {
	readonly member: string;
	readonly value: Json;
	/** When it was so, by the sender's clock. */
	readonly time: Microseconds;
	/** Whether members that are null are left out of objects in the value. */
	readonly leavesOutNulls: boolean;
}

/** Kind of the events that tell members of the record. */
export const STATE_UPDATE = "ConversationStateUpdateEvent";

/** Key of a state update whose value holds all members of the sender's state, by name. */
export const FULL_STATE = "full_state";

/**
 * Members that the sender leaves out of a full state when they are null. It leaves out null members inside of others
 * too; there the schema's default is null.
 */
const LEFT_OUT_WHEN_NULL = [
	"persistence_dir",
	"security_analyzer",
	"last_user_message_id",
	"leaf_event_id",
	"hook_config",
] as const;

/** Members that no event tells: what identifies a conversation, and what orders its posted records. */
export const NEVER_TOLD: ReadonlySet<string> = new Set(["id", "created_at", "updated_at"]);

/**
 * What events say about the record, in their order.
 *
 * - A state update tells the member that `key` names; a full state tells many.
 * - Every other event tells `leaf_event_id`, for the sender appends it to the conversation's tree and moves the head
 *   there without a state update. Some are stamped before others and appended after them, so each is taken to be at
 *   least as late as the ones before it in its batch.
 * - The agent's state of an ACP agent tells the three members that the sender lifts from it.
 */
export function statementsOf(events: readonly TimedEvent[]): Statement[] {
	const statements: Statement[] = [];
	let head: Pick<TimedEvent, "time" | "receivedAt"> | undefined;
	for (const { id, kind, time, receivedAt, members } of events) {
		if (kind !== STATE_UPDATE) {
			const before = head?.receivedAt === receivedAt ? head : undefined;
			head = { time: before !== undefined && before.time > time ? before.time : time, receivedAt };
			statements.push({ member: "leaf_event_id", value: id, time: head.time, leavesOutNulls: false });
			continue;
		}
		const { key, value } = members;
		if (typeof key !== "string" || value === undefined) continue;
		const leavesOutNulls = key === FULL_STATE;
		const told = leavesOutNulls ? fullState(value) : { [key]: value };
		for (const [member, value] of Object.entries({ ...lifted(told.agent_state), ...told }))
			if (!NEVER_TOLD.has(member)) statements.push({ member, value, time, leavesOutNulls });
	}
	return statements;
}

/** The members of a full state, with the ones that are left out because they are null. */
export function fullState(value: Json): JsonMembers {
	if (!isJsonMembers(value)) return {};
	return { ...Object.fromEntries(LEFT_OUT_WHEN_NULL.map((member) => [member, null])), ...value };
}

/**
 * The members of the record that the sender lifts from the state of an ACP agent. Absent ones are not told: before its
 * session starts the agent knows no model, and the record shows the one that was asked for.
 */
function lifted(agentState: Json | undefined): JsonMembers {
	const told: JsonMembers = {};
	if (!isJsonMembers(agentState)) return told;
	const { acp_current_model_id: model, acp_available_models: models } = agentState;
	const { acp_supports_runtime_model_switch: switchable } = agentState;
	if (typeof model === "string" && model !== "") told.current_model_id = model;
	if (Array.isArray(models) && models.length > 0) told.available_models = models;
	if (typeof switchable === "boolean") told.supports_runtime_model_switch = switchable;
	return told;
}
