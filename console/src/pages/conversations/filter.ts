import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { ConversationExecutionStatus as Status } from "../../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
	ConversationOrder,
} from "../../../../gen/conversations/v1/conversation_service_pb.js";
import { SCORE_CONDITION, SCORE_NAME } from "../../../../src/conversations/read/filter.ts";
import { COMMON_RANGES, rangeOf, rangeWords } from "../../parts/days.ts";

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

/** Whether a text is a value of a filter, and the words for what it must be. */
interface Form {
	readonly isValid: (value: string) => boolean;
	readonly words: string;
}

const STATUS: Form = { isValid: (value) => STATUSES.has(value), words: `one of ${[...STATUSES.keys()].join(", ")}` };
const TRUTH: Form = { isValid: (value) => value === "true" || value === "false", words: "true or false" };
const TIME: Form = {
	isValid: (value) => timeOf(value) !== undefined,
	words: "a day or a time such as yesterday, 2026-11-23 or 2026-11-23T08:00:00Z",
};
const RANGE: Form = {
	isValid: (value) => rangeOf(value) !== undefined,
	words: "days such as today, last 7 days, 2026-11-23 or 2026-11-20..2026-11-23",
};
const SCORE: Form = {
	isValid: (value) => SCORE_CONDITION.test(value),
	words: "a condition such as thumbs:true, tests_passed>=0.8 or none:thumbs",
};
const NUMBER: Form = { isValid: (value) => /^\d{1,9}(\.\d+)?$/.test(value), words: "a number such as 30 or 0.5" };

/** Filters by days: the part of the name that their filters by time have in common. */
const RANGES = ["created", "updated", "activity"] as const;

/** Filters by time: their fields, and their names in the address. */
const TIMES = [
	["createdFrom", "created_from"],
	["createdTo", "created_to"],
	["updatedFrom", "updated_from"],
	["updatedTo", "updated_to"],
	["activityFrom", "activity_from"],
	["activityTo", "activity_to"],
] as const;

/** Forms of the values of filters. Every text is a value of the others. */
const FORMS: ReadonlyMap<string, Form> = new Map([
	["execution_status", STATUS],
	["execution_status_not", STATUS],
	["has_error", TRUTH],
	["has_gaps", TRUTH],
	...TIMES.map(([, name]) => [name, TIME] as const),
	...RANGES.map((name) => [name, RANGE] as const),
	["silent_minutes", NUMBER],
	["cost_from", NUMBER],
	["cost_to", NUMBER],
	["score", SCORE],
]);

/** Returns what is wrong with the value of a filter; undefined if nothing is. */
export function faultOf(name: string, value: string): string | undefined {
	const form = FORMS.get(name);
	return form === undefined || form.isValid(value) ? undefined : `${name} must be ${form.words}`;
}

/** Returns the time of a filter, a day being its start in the zone of the address; undefined for a text that is none. */
function timeOf(text: string, now = new Date()): Date | undefined {
	if (!/^\d{4}-\d\d-\d\dT/.test(text)) return rangeOf(text, now)?.from;
	const time = new Date(text);
	return Number.isNaN(time.getTime()) ? undefined : time;
}

/**
 * Returns the parameters of the address as the API takes them: it has no minutes of silence, and no days of a zone.
 *
 * @param now milliseconds of Unix time
 */
export function apiParametersOf(query: URLSearchParams, now: number): URLSearchParams {
	const parameters = new URLSearchParams(query);
	const filter = filterOf(query, now);
	for (const name of ["silent_minutes", "zone", ...RANGES]) parameters.delete(name);
	for (const [field, name] of TIMES) {
		const time = filter[field];
		parameters.delete(name);
		if (time !== undefined) parameters.set(name, timestampDate(time).toISOString());
	}
	return parameters;
}

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
	["created", "Created"],
	["updated", "Updated"],
	["activity", "Active"],
	["created_from", "Created from"],
	["created_to", "Created before"],
	["updated_from", "Updated from"],
	["updated_to", "Updated before"],
	["activity_from", "Active from"],
	["activity_to", "Active before"],
	["silent_minutes", "Minutes of silence"],
	["cost_from", "Cost from"],
	["cost_to", "Cost to"],
	["score", "Score"],
]);

/** Filters that the address may have several times. */
export const LIST_FILTERS: ReadonlySet<string> = new Set([
	"tag",
	"id",
	"execution_status",
	"execution_status_not",
	"score",
]);

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

/** Most columns of scores that a list shows. */
export const MOST_COLUMNS = 4;

/** Returns the names of the scores that a list shows as columns. */
export function scoreColumnsOf(query: URLSearchParams): readonly string[] {
	return [...new Set(query.getAll("score_name"))].filter((name) => SCORE_NAME.test(name)).slice(0, MOST_COLUMNS);
}

/** Returns the name of the score that a list is ordered by; empty if there is none. */
export function orderScoreOf(query: URLSearchParams): string {
	const name = query.get("order_score") ?? "";
	return query.get("order_by") === "score" && SCORE_NAME.test(name) ? name : "";
}

/** Returns the order of an address. That by a score needs its name, {@link orderScoreOf}. */
export function orderOf(query: URLSearchParams): ConversationOrder {
	if (orderScoreOf(query) !== "") return ConversationOrder.SCORE;
	return ORDERS.get(query.get("order_by") ?? "")?.order ?? ConversationOrder.UPDATED;
}

/**
 * Returns the filter of an address, without values that are not valid.
 *
 * @param now milliseconds of Unix time; `silent_minutes` counts back from it
 */
export function filterOf(query: URLSearchParams, now: number): ConversationFilter {
	const statuses = (name: string) => query.getAll(name).flatMap((status) => STATUSES.get(status) ?? []);
	const text = (name: string) => query.get(name) ?? "";
	const valid = (name: string) => {
		const value = query.get(name);
		return value === null || faultOf(name, value) !== undefined ? undefined : value;
	};
	const number = (name: string) => {
		const value = valid(name);
		return value === undefined ? undefined : Number(value);
	};
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
		scores: query.getAll("score").filter((score) => faultOf("score", score) === undefined),
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
	const [hasError, hasGaps] = [valid("has_error"), valid("has_gaps")];
	if (hasError !== undefined) filter.hasError = hasError === "true";
	if (hasGaps !== undefined) filter.hasGaps = hasGaps === "true";
	for (const [field, name] of TIMES) {
		const [subject = "", end] = name.split("_");
		const range = rangeOf(query.get(subject) ?? "", new Date(now));
		const times = [timeOf(query.get(name) ?? "", new Date(now)), end === "from" ? range?.from : range?.to];
		if (name === "activity_to" && silent !== undefined) times.push(new Date(now - silent * 60_000));
		const known = times.flatMap((time) => time?.getTime() ?? []);
		// All of them hold.
		if (known.length > 0)
			filter[field] = timestampFromDate(new Date(end === "from" ? Math.max(...known) : Math.min(...known)));
	}
	return filter;
}

/** Returns the words for the value of a filter. */
export function wordsOf(name: string, value: string): string {
	return RANGES.some((range) => range === name) ? rangeWords(value) : value;
}

/** Parameters of the address that are no filter, on every page. */
const NO_FILTERS: ReadonlySet<string> = new Set(["zone", "order_by", "order_score", "score_name", "query"]);

/** Removes all filters of the address. What is no filter stays. */
export function withoutFilters(query: URLSearchParams, noFilters: readonly string[] = []): URLSearchParams {
	const rest = new URLSearchParams(query);
	for (const name of query.keys()) if (!NO_FILTERS.has(name) && !noFilters.includes(name)) rest.delete(name);
	return rest;
}

/** Whether the address has a filter. */
export function hasFilters(query: URLSearchParams): boolean {
	return withoutFilters(query).size < query.size;
}

/** Minutes of silence of the button's view. */
const SILENT_MINUTES = "10";

/** Whether a button or a choice above the list shows a filter. */
export function hasButton(name: string, value: string): boolean {
	if (name === "execution_status") return STATUSES.has(value);
	if (name === "activity") return COMMON_RANGES.includes(value);
	return (name === "silent_minutes" && value === SILENT_MINUTES) || (name === "has_gaps" && value === "true");
}

/** Whether a view shows conversations that have been silent for some minutes. */
export function isSilentView(query: URLSearchParams): boolean {
	return query.has("silent_minutes");
}

/** Returns a view of the conversations that run or wait, and have been silent for ten minutes. */
export function silentQuery(query: URLSearchParams): URLSearchParams {
	const silent = withoutStatus(query);
	for (const status of ["running", "waiting_for_confirmation"]) silent.append("execution_status", status);
	silent.set("silent_minutes", SILENT_MINUTES);
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
