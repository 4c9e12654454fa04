import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { ConversationExecutionStatus as Status } from "../../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
	ConversationOrder,
} from "../../../../gen/conversations/v1/conversation_service_pb.js";

/** The filter and the order of a list, as the address has them. The names are those of the JSON API. */

/** Statuses by their names in the record and in the address. */
export const STATUSES: ReadonlyMap<string, Status> = new Map([
	["running", Status.RUNNING],
	["waiting_for_confirmation", Status.WAITING_FOR_CONFIRMATION],
	["error", Status.ERROR],
	["stuck", Status.STUCK],
	["paused", Status.PAUSED],
	["idle", Status.IDLE],
	["finished", Status.FINISHED],
	["deleting", Status.DELETING],
]);

/** Orders by their names in the address, with the words for a person. */
export const ORDERS: ReadonlyMap<string, { readonly order: ConversationOrder; readonly words: string }> = new Map([
	["updated", { order: ConversationOrder.UPDATED, words: "newest update" }],
	["activity", { order: ConversationOrder.ACTIVITY, words: "last activity" }],
	["created", { order: ConversationOrder.CREATED, words: "newest" }],
	["cost", { order: ConversationOrder.COST, words: "cost" }],
	["tokens", { order: ConversationOrder.TOKENS, words: "tokens" }],
]);

/** Parameters that are filters, with the words for a person. */
export const FILTER_WORDS: ReadonlyMap<string, string> = new Map([
	["title_contains", "Title"],
	["model", "Model"],
	["agent_kind", "Agent"],
	["sender", "Sender"],
	["owner", "Owner"],
	["tag", "Tag"],
	["tag_key", "Tag key"],
	["id", "Id"],
	["parent_conversation_id", "Parent"],
	["forked_from_conversation_id", "Fork of"],
	["execution_status", "Status"],
	["execution_status_not", "Status is not"],
	["has_error", "Has an error"],
	["has_gaps", "Has gaps"],
	["created_from", "Created from"],
	["created_to", "Created before"],
	["updated_from", "Updated from"],
	["updated_to", "Updated before"],
	["activity_from", "Active from"],
	["activity_to", "Active before"],
	["silent_minutes", "Minutes of silence"],
	["cost_from", "Cost from"],
	["cost_to", "Cost to"],
]);

/** Filters that the address may have several times. */
export const LIST_FILTERS: ReadonlySet<string> = new Set(["tag", "id", "execution_status", "execution_status_not"]);

/**
 * Events that are not followed. State updates that change something arrive as updates of the record; a hook and an
 * observation stand between other events, and can be large.
 */
export const NOT_FOLLOWED: readonly string[] = [
	"StreamingDeltaEvent",
	"ConversationStateUpdateEvent",
	"HookExecutionEvent",
	"ObservationEvent",
	"SystemPromptEvent",
];

export function orderOf(query: URLSearchParams): ConversationOrder {
	return ORDERS.get(query.get("order_by") ?? "")?.order ?? ConversationOrder.UPDATED;
}

/**
 * Returns the filter of an address.
 *
 * @param now milliseconds of Unix time; `silent_minutes` counts back from it
 */
export function filterOf(query: URLSearchParams, now: number): ConversationFilter {
	const statuses = (name: string) => query.getAll(name).flatMap((status) => STATUSES.get(status) ?? []);
	const time = (name: string) => {
		const date = new Date(query.get(name) ?? "");
		return Number.isNaN(date.getTime()) ? {} : timestampFromDate(date);
	};
	const text = (name: string) => query.get(name) ?? "";
	const number = (name: string) => (query.has(name) ? Number(query.get(name)) : undefined);
	const silent = number("silent_minutes");
	const chosen = statuses("execution_status");
	const filter = create(ConversationFilterSchema, {
		executionStatus: chosen.length === 1 ? (chosen[0] ?? Status.UNSPECIFIED) : Status.UNSPECIFIED,
		executionStatuses: chosen.length === 1 ? [] : chosen,
		executionStatusesNot: statuses("execution_status_not"),
		model: text("model"),
		agentKind: text("agent_kind"),
		sender: text("sender"),
		owner: text("owner"),
		ids: query.getAll("id"),
		tagKey: text("tag_key"),
		titleContains: text("title_contains"),
		parentConversationId: text("parent_conversation_id"),
		forkedFromConversationId: text("forked_from_conversation_id"),
		tags: Object.fromEntries(
			query.getAll("tag").map((tag) => {
				const at = tag.indexOf(":");
				return at < 0 ? [tag, ""] : [tag.slice(0, at), tag.slice(at + 1)];
			}),
		),
	});
	const costFrom = number("cost_from");
	const costTo = number("cost_to");
	if (costFrom !== undefined) filter.costFrom = costFrom;
	if (costTo !== undefined) filter.costTo = costTo;
	if (query.has("has_error")) filter.hasError = query.get("has_error") === "true";
	if (query.has("has_gaps")) filter.hasGaps = query.get("has_gaps") === "true";
	const times = {
		createdFrom: "created_from",
		createdTo: "created_to",
		updatedFrom: "updated_from",
		updatedTo: "updated_to",
		activityFrom: "activity_from",
		activityTo: "activity_to",
	} as const;
	for (const [field, name] of Object.entries(times))
		if (query.has(name)) Object.assign(filter, { [field]: time(name) });
	if (silent !== undefined) filter.activityTo = timestampFromDate(new Date(now - silent * 60_000));
	return filter;
}

/** Whether a view shows conversations that have been silent for some minutes. */
export function isSilentView(query: URLSearchParams): boolean {
	return query.has("silent_minutes");
}

/** Returns a view of the conversations that run or wait, and have been silent for ten minutes. */
export function silentQuery(query: URLSearchParams): URLSearchParams {
	const silent = withoutStatus(query);
	for (const status of ["running", "waiting_for_confirmation"]) silent.append("execution_status", status);
	silent.set("silent_minutes", "10");
	return silent;
}

/** Whether a view shows conversations of which something is missing. */
export function isGapsView(query: URLSearchParams): boolean {
	return query.get("has_gaps") === "true";
}

/** Returns a view of the conversations of which something is missing. */
export function gapsQuery(query: URLSearchParams): URLSearchParams {
	const gaps = withoutStatus(query);
	gaps.set("has_gaps", "true");
	return gaps;
}

/** Returns a view without its choice of statuses, of silence and of gaps. */
export function withoutStatus(query: URLSearchParams): URLSearchParams {
	const rest = new URLSearchParams(query);
	for (const name of ["execution_status", "execution_status_not", "silent_minutes", "has_gaps"]) rest.delete(name);
	return rest;
}
