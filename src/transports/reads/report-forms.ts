import type { Value } from "@bufbuild/protobuf/wkt";
import type { ReportUsageResponse, UsageTotals } from "../../../gen/conversations/v1/conversation_report_service_pb.js";
import type { ListConversationsResponse } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { type ReportScoresResponse, ScoreTotalsSchema } from "../../../gen/conversations/v1/score_service_pb.js";
import type { ConversationSummary } from "../../../gen/conversations/v1/summary_pb.js";
import { nameOfStatus } from "../../conversations/read/filter.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import { fromValue, jsonFormOf } from "../../record/json/json-form.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf } from "../../record/json/json-value.ts";
import { formatDateTime } from "../../record/json/scalars.ts";
import { planMessage } from "../../record/plan.ts";
import type { ContentResponse } from "../http/exchange.ts";

/** Answers in CSV (RFC 4180), which `Accept: text/csv` asks for. */

/** Whether the first media type of `Accept` that the routes with CSV know is CSV. */
export function prefersCsv(accept: string | undefined): boolean {
	const types = (accept ?? "").split(",").map((type) => type.split(";", 1)[0]?.trim().toLowerCase());
	return types.find((type) => type === "text/csv" || type === "application/json") === "text/csv";
}

export type Cell = string | number | bigint;

/** Returns a header line and a line for each row. */
function csvResponse(header: readonly string[], rows: readonly (readonly Cell[])[]): ContentResponse {
	const content = [header, ...rows].map((line) => `${line.map(csvField).join()}\r\n`).join("");
	return { status: 200, content, type: "text/csv; charset=utf-8" };
}

/** Returns a value as a field of CSV that no spreadsheet takes for a formula. */
export function csvField(value: Cell): string {
	const text = String(value);
	// A spreadsheet would read a text that begins like this as a formula; it leaves out what cannot be seen before that.
	const safe = typeof value === "string" && /^[\t\r\n]|^[\s\p{C}]*[=+\-@＝＋－＠]/u.test(text) ? `'${text}` : text;
	return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The columns of the list in CSV, and how they are taken from an entry. Times are date-times, missing values are empty. */
const COLUMNS: readonly (readonly [string, (summary: ConversationSummary) => Cell | undefined])[] = [
	["id", (summary) => summary.id],
	["title", (summary) => summary.title],
	["execution_status", (summary) => nameOfStatus(summary.executionStatus)],
	["agent_kind", (summary) => summary.agentKind],
	["model", (summary) => summary.model],
	["sender", (summary) => summary.sender],
	["owner", (summary) => summary.owner],
	["created_at", (summary) => summary.createdAt && formatDateTime(summary.createdAt)],
	["updated_at", (summary) => summary.updatedAt && formatDateTime(summary.updatedAt)],
	["last_activity_at", (summary) => summary.lastActivityAt && formatDateTime(summary.lastActivityAt)],
	["cost", (summary) => summary.accumulatedCost],
	["prompt_tokens", (summary) => summary.tokens?.promptTokens],
	["completion_tokens", (summary) => summary.tokens?.completionTokens],
	["cache_read_tokens", (summary) => summary.tokens?.cacheReadTokens],
	["cache_write_tokens", (summary) => summary.tokens?.cacheWriteTokens],
	["reasoning_tokens", (summary) => summary.tokens?.reasoningTokens],
	["events", (summary) => summary.eventCount],
	["gaps", (summary) => summary.gaps?.count ?? 0n],
	["parent_conversation_id", (summary) => summary.parentConversationId],
	["forked_from_conversation_id", (summary) => summary.forkedFromConversationId],
	["tags", (summary) => (Object.keys(summary.tags).length === 0 ? "" : JSON.stringify(summary.tags))],
	["error_code", (summary) => summary.lastError?.code],
	["error", (summary) => summary.lastError?.text],
	["first_message", (summary) => summary.firstMessage],
	["last_message", (summary) => summary.lastMessage],
];

/** Returns a page as CSV. A link to the next page (RFC 8288) says that the list goes on. */
export function listCsv(
	page: ListConversationsResponse,
	search: string,
	scoreNames: readonly string[] = [],
): ContentResponse {
	const { conversations, nextPageToken } = page;
	const rows = conversations.map(({ summary, unreadable, scores }) => {
		const shown = scoresJson(scores);
		return [
			...COLUMNS.map(([, value]) => (summary && value(summary)) ?? ""),
			unreadable ? "true" : "",
			...scoreNames.map((name) => cellOf(memberOf(shown, name))),
		];
	});
	const header = [...COLUMNS.map(([name]) => name), "unreadable", ...scoreNames.map((name) => `score:${name}`)];
	const response = csvResponse(header, rows);
	if (nextPageToken === "") return response;
	const next = new URLSearchParams(search);
	next.set("page_token", nextPageToken);
	return { ...response, headers: { Link: `<?${next}>; rel="next"` } };
}

/** Returns the scores of a conversation by their names. */
export function scoresJson(scores: Readonly<Record<string, Value>>): ExactJsonObject {
	return Object.fromEntries(Object.entries(scores).map(([name, value]) => [name, fromValue(value)]));
}

const scoreTotals = planMessage(ScoreTotalsSchema);

/** Returns a report of scores as CSV with a header line. The counts of categories are a JSON object. */
export function scoresCsv({ rows }: ReportScoresResponse, groupBy: readonly string[]): ContentResponse {
	const names = scoreTotals.desc.fields.map(({ name }) => name);
	const lines = rows.map(({ group, scores }) => {
		const totals = jsonFormOf(scoreTotals, scores);
		return [...group, ...names.map((name) => cellOf(memberOf(totals, name)))];
	});
	return csvResponse([...groupBy, ...names], lines);
}

function cellOf(value: ExactJson | undefined): Cell {
	if (typeof value === "boolean") return String(value);
	if (typeof value !== "object") return value ?? "";
	return isJsonObject(value) && Object.keys(value).length > 0 ? stringifyExactJson(value) : "";
}

/** Returns the JSON text of a report of usage. The values of a group are members with the names of `groupBy`. */
export function usageJson(report: ReportUsageResponse, groupBy: readonly string[]): string {
	const { rows, total, conversationsWithoutCost = 0n, conversationsWithoutTokens = 0n } = report;
	return stringifyExactJson({
		rows: rows.map(({ start, group, isRest, usage }) => ({
			...(start === undefined ? {} : { start: formatDateTime(start) }),
			...(isRest ? { rest: true } : Object.fromEntries(groupBy.map((name, n) => [name, group[n] ?? ""]))),
			...totalsJson(usage),
		})),
		total: totalsJson(total),
		conversations_without_cost: conversationsWithoutCost,
		conversations_without_tokens: conversationsWithoutTokens,
	});
}

function totalsJson(totals: UsageTotals | undefined) {
	const { cost = 0, tokens, calls = 0n, conversations = 0n, limited = false } = totals ?? {};
	return {
		cost,
		tokens: {
			prompt_tokens: tokens?.promptTokens ?? 0n,
			completion_tokens: tokens?.completionTokens ?? 0n,
			cache_read_tokens: tokens?.cacheReadTokens ?? 0n,
			cache_write_tokens: tokens?.cacheWriteTokens ?? 0n,
			reasoning_tokens: tokens?.reasoningTokens ?? 0n,
		},
		calls,
		conversations,
		...(limited ? { limited } : {}),
	};
}

/**
 * Returns a report of usage as CSV with a header line. The row of the other groups has `true` in the column `rest`, and
 * a row with a number at the limit of its type has it in `limited`.
 */
export function usageCsv({ rows }: ReportUsageResponse, groupBy: readonly string[]): ContentResponse {
	const tokens = ["prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"];
	const header = ["start", ...groupBy, "rest", "cost", ...tokens, "calls", "conversations", "limited"];
	const lines = rows.map(({ start, group, isRest, usage }) => {
		const { cost, tokens: counts, calls, conversations, limited } = totalsJson(usage);
		return [
			start === undefined ? "" : formatDateTime(start),
			...groupBy.map((_, n) => group[n] ?? ""),
			isRest ? "true" : "",
			cost,
			...Object.values(counts),
			calls,
			conversations,
			limited === true ? "true" : "",
		];
	});
	return csvResponse(header, lines);
}
