import { type ExactJson, type ExactJsonObject, isJsonObject } from "../record/json/json-value.ts";
import type { Microseconds } from "../record/json/scalars.ts";

/** An event of kind {@link STATE_UPDATE}. */
export interface StateUpdate {
	/** The members of the event. */
	readonly members: ExactJsonObject;
	/** When it happened, as `eventTime` understands it. */
	readonly time: Microseconds;
}

/** A member of the record and the value that an event says it has. */
export interface Statement {
	readonly member: string;
	readonly value: ExactJson;
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

/** Members that no event tells of a record: what identifies a conversation, and what orders its posted records. */
const NEVER_TOLD: ReadonlySet<string> = new Set(["id", "created_at", "updated_at"]);

/**
 * Member that the store takes from the events that are no state updates, because the sender moves it with each of them
 * and tells of it in full states only.
 */
const LEAF = "leaf_event_id";

/**
 * What state updates say about the record, in their order. One tells the member that its `key` names; a full state
 * tells many. The state of an ACP agent tells the three members too that the sender lifts from it.
 */
export function statementsOf(updates: readonly StateUpdate[]): Statement[] {
	return updates.flatMap(({ members: { key, value }, time }) => {
		if (typeof key !== "string" || value === undefined) return [];
		const leavesOutNulls = key === FULL_STATE;
		const told = leavesOutNulls ? fullState(value) : { [key]: value };
		return Object.entries({ ...lifted(told.agent_state), ...told })
			.filter(([member]) => !NEVER_TOLD.has(member) && member !== LEAF)
			.map(([member, value]) => ({ member, value, time, leavesOutNulls }));
	});
}

/** What a full state says about a record that is not there yet; empty for another state update. */
export function firstStatements({ members: { key, value }, time }: StateUpdate): Statement[] {
	if (key !== FULL_STATE || value === undefined) return [];
	return Object.entries(fullState(value))
		.filter(([member]) => !NEVER_TOLD.has(member))
		.map(([member, value]) => ({ member, value, time, leavesOutNulls: true }));
}

/** The members of a full state, with the ones that are left out because they are null. */
function fullState(value: ExactJson): ExactJsonObject {
	if (!isJsonObject(value)) return {};
	return { ...Object.fromEntries(LEFT_OUT_WHEN_NULL.map((member) => [member, null])), ...value };
}

/**
 * The members of the record that the sender lifts from the state of an ACP agent. Absent ones are not told: before its
 * session starts the agent knows no model, and the record shows the one that was asked for.
 */
function lifted(agentState: ExactJson | undefined): ExactJsonObject {
	const told: ExactJsonObject = {};
	if (!isJsonObject(agentState)) return told;
	const { acp_current_model_id: model, acp_available_models: models } = agentState;
	const { acp_supports_runtime_model_switch: switchable } = agentState;
	if (typeof model === "string" && model !== "") told.current_model_id = model;
	if (Array.isArray(models) && models.length > 0) told.available_models = models;
	if (typeof switchable === "boolean") told.supports_runtime_model_switch = switchable;
	return told;
}
