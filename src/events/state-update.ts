import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	memberOf,
	sameTree,
	setMember,
} from "../record/json/json-value.ts";
import type { Microseconds } from "../record/json/scalars.ts";
import { armOf, childPlace, type MessagePlan, objectAt, type Place, rootPlace } from "../record/plan.ts";
import { REDACTED } from "../userinfo.ts";

export interface StateUpdate {
	readonly members: ExactJsonObject;
	/** When it happened, as `eventTimes` returns it. */
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

/**
 * Stands in a reported value for a secret that this service has redacted, because it has no key to encrypt it. The sender
 * reported the secret, so it becomes part of the record, redacted. {@link REDACTED} is the sender's placeholder.
 */
export const HIDDEN = "\0redacted";

/** Lists of the record's metrics that a state update of `stats` omits. A full state contains them. */
const PER_CALL_LISTS = ["costs", "response_latencies", "token_usages"] as const;

/**
 * Returns the value of a member of the record after an event has reported it, with the names that the schema prefers.
 *
 * An event holds less than a posted record. It has placeholders for secrets, which a posted record omits or has as
 * null, and shortened metrics. A placeholder stands for the present value, and omitted lists of the metrics do not
 * change. A placeholder without a present value is omitted. So is an object of which nothing else remains and which is
 * not there now. Array items keep their positions.
 *
 * @returns `present` itself when the event reports no other value; undefined when it reports nothing but placeholders
 */
export function valueAfter(
	{ member, value, omitsNulls }: ReportedMember,
	plan: MessagePlan,
	present: ExactJson | undefined,
): ExactJson | undefined {
	const reported = member === "stats" ? withPerCallLists(value, present) : value;
	// Nearly all members of a full state are unchanged.
	if (present !== undefined && sameTree(reported, present)) return present;
	return merge(reported, present, omitsNulls, childPlace(rootPlace(plan), {}, member));
}

function merge(
	reported: ExactJson,
	present: ExactJson | undefined,
	omitsNulls: boolean,
	place: Place | undefined,
): ExactJson | undefined {
	if (reported === REDACTED) return present;
	if (reported === HIDDEN) return REDACTED;
	if (Array.isArray(reported)) {
		const items = Array.isArray(present) ? present : undefined;
		let isSame = items?.length === reported.length;
		const merged = reported.map((item, index) => {
			const value = merge(item, items?.[index], omitsNulls, placeInside(place, reported, index));
			isSame &&= value === items?.[index];
			return value ?? (isJsonObject(item) ? {} : item);
		});
		return isSame ? present : merged;
	}
	return isJsonObject(reported) ? mergeObject(reported, present, omitsNulls, place) : reported;
}

function mergeObject(
	reported: ExactJsonObject,
	present: ExactJson | undefined,
	omitsNulls: boolean,
	place: Place | undefined,
): ExactJson | undefined {
	const before = isJsonObject(present) && isSameArm(place, reported, present) ? present : undefined;
	const fields = place && objectAt(place, reported)?.members;
	const merged: ExactJsonObject = {};
	let isSame = before !== undefined;
	const names = Object.keys(reported);
	for (const name of names) {
		const preferred = fields?.get(name)?.name ?? name;
		const member = Object.hasOwn(reported, preferred) ? name : preferred;
		const last = memberOf(before, member);
		const value = merge(reported[name] ?? null, last, omitsNulls, placeInside(place, reported, name));
		isSame &&= value === last;
		if (value !== undefined) setMember(merged, member, value);
	}
	if (before === undefined) return names.length > 0 && Object.keys(merged).length === 0 ? present : merged;
	for (const name of Object.keys(before)) {
		if (Object.hasOwn(merged, name)) continue;
		if (omitsNulls && before[name] === null) setMember(merged, name, null);
		else isSame = false;
	}
	return isSame ? present : merged;
}

/** Whether two values of a union are of the same arm. A placeholder does not stand for a value of another arm. */
function isSameArm(place: Place | undefined, reported: ExactJsonObject, present: ExactJsonObject): boolean {
	const message = place?.collection === undefined && place?.value?.type === "message" ? place.value.message : undefined;
	if (message?.form !== "union" || memberOf(reported, message.discriminator) === REDACTED) return true;
	return armOf(message, reported) === armOf(message, present);
}

/**
 * Returns the place of a member or an element; undefined where the schema prefers no names: below the places that it
 * describes, and in a value that is neither object nor array.
 */
function placeInside(
	place: Place | undefined,
	json: ExactJsonObject | ExactJson[],
	token: string | number,
): Place | undefined {
	if (place === undefined || (place.value === undefined && place.collection === undefined)) return undefined;
	const reported = Array.isArray(json) ? json[Number(token)] : json[token];
	return typeof reported === "object" && reported !== null ? childPlace(place, json, token) : undefined;
}

/** Adds the present lists to the metrics of each usage that omit them. */
function withPerCallLists(reported: ExactJson, present: ExactJson | undefined): ExactJson {
	const usages = memberOf(reported, "usage_to_metrics");
	if (!isJsonObject(reported) || !isJsonObject(usages)) return reported;
	const now = memberOf(present, "usage_to_metrics");
	const completed: ExactJsonObject = {};
	for (const [usage, metrics] of Object.entries(usages)) {
		const before = memberOf(now, usage);
		const lists: ExactJsonObject = {};
		for (const list of PER_CALL_LISTS) {
			const value = memberOf(before, list);
			if (value !== undefined) lists[list] = value;
		}
		setMember(completed, usage, isJsonObject(metrics) ? { ...lists, ...metrics } : metrics);
	}
	return { ...reported, usage_to_metrics: completed };
}
