import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf } from "../record/json/json-value.ts";
import type { Microseconds } from "../record/json/scalars.ts";

/** An event of kind {@link STATE_UPDATE}. */
export interface StateUpdate {
	/** The members of the event. */
	readonly members: ExactJsonObject;
	/** When it happened, as `eventTime` returns it. */
	readonly time: Microseconds;
}

/** A member of the record and the value that an event reports for it. */
export interface ReportedMember {
	readonly member: string;
	readonly value: ExactJson;
	/** When the member had the value, by the sender's clock. */
	readonly time: Microseconds;
	/** Whether objects in the value omit members that are null. */
	readonly omitsNulls: boolean;
}

/** Kind of the events that report members of the record. */
export const STATE_UPDATE = "ConversationStateUpdateEvent";

/** Key of a state update whose value holds all members of the sender's state, by name. */
export const FULL_STATE = "full_state";

/**
 * Members that the sender omits from a full state when they are null. Inside other members it omits null members too,
 * but there the schema's default is null.
 */
const OMITTED_WHEN_NULL = [
	"persistence_dir",
	"security_analyzer",
	"last_user_message_id",
	"leaf_event_id",
	"hook_config",
] as const;

/** Members that are not taken from events: they identify a conversation, or order its posted records. */
const IGNORED_MEMBERS: ReadonlySet<string> = new Set(["id", "created_at", "updated_at"]);

/**
 * Whether a value is taken from events. The status `deleting` is not: it is final, so a conversation would end or not
 * depending on what arrives first. The sender posts a record when it deletes a conversation.
 */
const isTaken = (member: string, value: ExactJson): boolean =>
	!IGNORED_MEMBERS.has(member) && !(member === "execution_status" && value === "deleting");

/**
 * Member that the store takes from the events that are no state updates. The sender changes it with each of these
 * events and reports it in full states only.
 */
const LEAF = "leaf_event_id";

/**
 * Returns the members that state updates report, in their order. A state update reports the member that its
 * `key` names; a full state reports many. The state of an ACP agent also reports the members of {@link copiedMembers}.
 */
export function reportedMembers(updates: readonly StateUpdate[]): ReportedMember[] {
	return updates.flatMap(({ members: { key, value }, time }) => {
		if (typeof key !== "string" || value === undefined) return [];
		const omitsNulls = key === FULL_STATE;
		const reported = omitsNulls ? fullState(value) : { [key]: value };
		return Object.entries({ ...copiedMembers(reported.agent_state), ...reported })
			.filter(([member, value]) => isTaken(member, value) && member !== LEAF)
			.map(([member, value]) => ({ member, value, time, omitsNulls }));
	});
}

/** Returns the id of the last event according to a state update; undefined when it does not report it. */
export function reportedLeafOf({ key, value }: ExactJsonObject): ExactJson | undefined {
	if (key === LEAF) return value;
	return key === FULL_STATE && isJsonObject(value) ? memberOf(value, LEAF) : undefined;
}

/** Returns the members of a full state for a record that does not exist yet; none for another state update. */
export function membersOfFullState({ members: { key, value }, time }: StateUpdate): ReportedMember[] {
	if (key !== FULL_STATE || value === undefined) return [];
	return Object.entries(fullState(value))
		.filter(([member, value]) => isTaken(member, value))
		.map(([member, value]) => ({ member, value, time, omitsNulls: true }));
}

/** Returns the members of a full state, including those that are omitted because they are null. */
function fullState(value: ExactJson): ExactJsonObject {
	if (!isJsonObject(value)) return {};
	return { ...Object.fromEntries(OMITTED_WHEN_NULL.map((member) => [member, null])), ...value };
}

/**
 * Returns the three members of the record that the sender copies from the state of an ACP agent. Absent ones are not
 * reported: before its session starts, the agent knows no model, and the record shows the requested one.
 */
function copiedMembers(agentState: ExactJson | undefined): ExactJsonObject {
	const reported: ExactJsonObject = {};
	if (!isJsonObject(agentState)) return reported;
	const { acp_current_model_id: model, acp_available_models: models } = agentState;
	const { acp_supports_runtime_model_switch: switchable } = agentState;
	if (typeof model === "string" && model !== "") reported.current_model_id = model;
	if (Array.isArray(models) && models.length > 0) reported.available_models = models;
	if (typeof switchable === "boolean") reported.supports_runtime_model_switch = switchable;
	return reported;
}
