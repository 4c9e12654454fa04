import { create } from "@bufbuild/protobuf";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	memberOf,
	parsePointer,
	sameTree,
	setMember,
} from "../record/json/json-value.ts";
import type { Microseconds } from "../record/json/scalars.ts";
import type { MessagePlan } from "../record/plan.ts";
import type { RecordFormat } from "../record/record-format.ts";
import { REDACTED } from "../userinfo.ts";
import type { MemberChanges, ReportTimes } from "./apply-updates.ts";
import { type ReportedMember, reportedMembers, type StateUpdate, valueAfter } from "./state-update.ts";

/**
 * Decides what of a record that was fetched from the agent server's API becomes part of the present record.
 *
 * The `updated_at` of a fetched record does not say how old its state is: the API shows the state that was saved last,
 * which can be older than what was posted, such as while a pause waits for the end of a step. The agent server also lists
 * the state updates that it logged. If one of them is later than the record's leaf and reports another value than the
 * record shows, the state is as old as that leaf.
 */

/** An event that the agent server listed before the record was fetched. */
export interface ListedEvent {
	readonly id: string;
	readonly time: Microseconds;
	/** The members of a state update; undefined for any other event. */
	readonly members: ExactJsonObject | undefined;
}

/** The forms of the two records, in plain text, and what is known of their times. */
export interface FetchedOver {
	readonly present: ExactJsonObject;
	readonly fetched: ExactJsonObject;
	readonly secrets: Iterable<string>;
	readonly reportTimes: ReportTimes;
	/** `updated_at` of the fetched record, as it is ordered. */
	readonly updatedAt: Microseconds | undefined;
	readonly listed: readonly ListedEvent[];
}

/** How a fetched record changes the present one. {@link OTHER_MEMBERS} stands for those without a field, which change together. */
interface FetchedChanges extends Pick<MemberChanges, "changed" | "values" | "reportTimes"> {
	/** Whether the fetched record takes the place of the posted one: its `updated_at` is later. */
	readonly isNewer: boolean;
	/** When the leaf of the fetched record was the leaf; undefined when that leaf is not taken. */
	readonly leafAt: Microseconds | undefined;
}

/** Stands for the top-level members that no field names. */
export const OTHER_MEMBERS = "unnamed_members";

/** Members that the agent server's API adds. They are empty in posted records, so any value of theirs is newer. */
const NEVER_POSTED: ReadonlySet<string> = new Set(["sub_conversation_ids"]);
/** As {@link NEVER_POSTED}, of the members without a field. */
const NEVER_POSTED_UNNAMED: ReadonlySet<string> = new Set(["runtime_info"]);

/** Members that are no part of a conversation's state. They change with `updated_at`. */
const METADATA: ReadonlySet<string> = new Set([
	...["title", "metrics", "created_at", "updated_at", "forked_from_conversation_id", "forked_from_event_id"],
	...["parent_conversation_id", "launched_agent_profile", "client_tools"],
]);

const LEAF = "leaf_event_id";

/** Returns how a fetched record changes the present one, which is of the same life of the conversation. */
export function fetchedChanges(format: RecordFormat, over: FetchedOver): FetchedChanges {
	const { present, fetched, reportTimes, updatedAt, listed } = over;
	const { posted, events } = reportTimes;
	for (const pointer of over.secrets) keepSecret(fetched, present, parsePointer(pointer) ?? []);
	const isNewer = updatedAt !== undefined && (posted === undefined || updatedAt > posted);
	const leaf = listed.findIndex(({ id }) => id === fetched.leaf_event_id);
	const afterLeaf = (leaf === -1 ? listed : listed.slice(0, leaf)).toReversed();
	const updates = afterLeaf.flatMap(({ members, time }) => (members === undefined ? [] : [{ members, time }]));
	const isFresh = agrees(format.plan, fetched, updates);
	const newestAt = listed.reduce<Microseconds | undefined>((newest, { time }) => laterOf(newest, time), undefined);
	const stateAt = isFresh ? laterOf(updatedAt, newestAt) : listed[leaf]?.time;
	const isLater = (time: Microseconds | undefined): boolean =>
		stateAt !== undefined && (time === undefined || stateAt >= time);
	const isTaken = (name: string): boolean => {
		if (name === "id") return false;
		if (NEVER_POSTED.has(name)) return true;
		if (name === "title" && present.title === null && updatedAt === posted) return true;
		if (METADATA.has(name)) return isNewer;
		// Events set it without a time of their own.
		if (name === LEAF) return isNewer && isFresh;
		const reportedAt = events[name];
		return reportedAt === undefined ? isNewer && (isFresh || isLater(posted)) : isLater(reportedAt);
	};
	const changed: string[] = [];
	const values = create(ConversationInfoSchema);
	const times: Record<string, Microseconds> = { ...events };
	for (const { name } of format.plan.fields) {
		const value = fetched[name];
		const before = present[name];
		if (value === undefined) continue;
		if (isTaken(name)) {
			if (stateAt !== undefined && Object.hasOwn(times, name)) times[name] = stateAt;
		} else if (!Object.hasOwn(events, name) || before === undefined) continue;
		else if (!shows(format.plan, { member: name, value: before }, value)) continue;
		const next = valueAfter({ member: name, value, time: 0n, omitsNulls: false }, format.plan, before);
		if (next === undefined || next === before || sameTree(next, before)) continue;
		if (before !== undefined && sameTree(withPresentDefaults(next, before), before)) continue;
		changed.push(name);
		format.replaceMember(values, name, format.membersFromJson({ [name]: next }));
	}
	const others = otherMembers(format.plan, present, fetched, isNewer);
	if (others !== undefined) {
		changed.push(OTHER_MEMBERS);
		Object.assign(values.unnamedMembers, format.membersFromJson(others).unnamedMembers);
	}
	// The present leaf can come from an event that is no longer later than the record.
	const shownLeaf = fetched[LEAF];
	if (changed.length > 0 && !changed.includes(LEAF) && isTaken(LEAF) && shownLeaf !== undefined) {
		changed.push(LEAF);
		format.replaceMember(values, LEAF, format.membersFromJson({ [LEAF]: shownLeaf }));
	}
	return {
		changed,
		values,
		reportTimes: { posted: isNewer ? updatedAt : posted, events: times },
		isNewer,
		leafAt: isNewer && isFresh ? newestAt : undefined,
	};
}

function otherMembers(
	plan: MessagePlan,
	present: ExactJsonObject,
	fetched: ExactJsonObject,
	isNewer: boolean,
): ExactJsonObject | undefined {
	const before = unnamedOf(plan, present);
	const arriving = unnamedOf(plan, fetched);
	const added = Object.entries(arriving).filter(([name]) => isNewer || NEVER_POSTED_UNNAMED.has(name));
	const after: ExactJsonObject = isNewer ? {} : { ...before };
	for (const [name, value] of added) setMember(after, name, value);
	return sameTree(after, before) ? undefined : after;
}

function unnamedOf(plan: MessagePlan, json: ExactJsonObject): ExactJsonObject {
	const names = plan.form === "object" ? plan.members : new Map();
	return Object.fromEntries(Object.entries(json).filter(([name]) => !names.has(name)));
}

/** Whether a value is the one that an event reports, apart from what events leave out, such as null members. */
function shows(
	plan: MessagePlan,
	{ member, value }: Pick<ReportedMember, "member" | "value">,
	shown: ExactJson | undefined,
): boolean {
	const after = valueAfter({ member, value, time: 0n, omitsNulls: true }, plan, shown);
	return after === undefined || shown === undefined || after === shown || sameTree(after, shown);
}

/** Whether a record shows the values that state updates report: applying the last one of each member changes nothing. */
function agrees(plan: MessagePlan, record: ExactJsonObject, updates: readonly StateUpdate[]): boolean {
	const last = new Map(reportedMembers(updates).map((reported) => [reported.member, reported]));
	return [...last.values()].every((reported) => shows(plan, reported, record[reported.member]));
}

/** Member of an agent's context that the agent server's API fills with its own time. */
const NOW = "current_datetime";
const LLM = "llm";

/**
 * Returns a fetched value without what the agent server's API fills in by itself: members of an LLM that are null in the
 * present record, and the time of an agent's context. So a value that differs in nothing else is the same.
 */
function withPresentDefaults(fetched: ExactJson, present: ExactJson | undefined, name?: string): ExactJson {
	if (!isJsonObject(fetched) || !isJsonObject(present)) return fetched;
	const copy: ExactJsonObject = {};
	for (const [member, value] of Object.entries(fetched)) {
		const before = memberOf(present, member);
		const isFilled = member === NOW || (name === LLM && before === null);
		const kept = isFilled && before !== undefined ? before : withPresentDefaults(value, before, member);
		setMember(copy, member, kept);
	}
	return copy;
}

/**
 * Puts a secret of the present record to the same place of a fetched one, in which the agent server hides it: a placeholder,
 * a null or a missing member does not replace a secret, anything else does.
 */
function keepSecret(fetched: ExactJson, present: ExactJson, path: readonly string[]): void {
	let [to, from]: [ExactJson | undefined, ExactJson | undefined] = [fetched, present];
	for (const [index, token] of path.entries()) {
		if (to === undefined || to === null || from === undefined || from === null) return;
		if (memberOf(to, "kind") !== memberOf(from, "kind")) return;
		const [next, kept]: [ExactJson | undefined, ExactJson | undefined] = [memberOf(to, token), memberOf(from, token)];
		if (index === path.length - 1) {
			if (kept !== undefined && (next === undefined || next === null || next === REDACTED)) putChild(to, token, kept);
			return;
		}
		// The agent server leaves out a map of which all values are secret.
		if ((next === undefined || next === null) && index === path.length - 2 && isJsonObject(kept))
			putChild(to, token, {});
		[to, from] = [memberOf(to, token), kept];
	}
}

function putChild(json: ExactJson, token: string, value: ExactJson): void {
	if (Array.isArray(json)) {
		if (Number(token) < json.length) json[Number(token)] = value;
	} else if (isJsonObject(json)) setMember(json, token, value);
}

function laterOf(one: Microseconds | undefined, other: Microseconds | undefined): Microseconds | undefined {
	if (one === undefined || other === undefined) return one ?? other;
	return one > other ? one : other;
}
