import type { IncomingHttpHeaders } from "node:http";
import type {
	ReportUsageRequest,
	ReportUsageResponse,
	UsageTotals,
} from "../../../gen/conversations/v1/conversation_report_service_pb.js";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import { formatDateTime } from "../../record/json/scalars.ts";
import type { ContentResponse } from "../http/answer.ts";
import { csvResponse, prefersCsv } from "./csv.ts";

/** Returns a report of usage as JSON or, by `Accept: text/csv`, as CSV (RFC 4180). */
export function usageForm(
	report: ReportUsageResponse,
	{ groupBy }: ReportUsageRequest,
	{ request }: { readonly request: { readonly headers: IncomingHttpHeaders } },
): string | ContentResponse {
	return prefersCsv(request.headers.accept) ? csvOf(report, groupBy) : jsonOf(report, groupBy);
}

function jsonOf({ rows, total }: ReportUsageResponse, groupBy: readonly string[]): string {
	return stringifyExactJson({
		rows: rows.map(({ start, group, isRest, usage }) => ({
			...(start === undefined ? {} : { start: formatDateTime(start) }),
			...(isRest ? { rest: true } : Object.fromEntries(groupBy.map((name, n) => [name, group[n] ?? ""]))),
			...totalsJson(usage),
		})),
		total: totalsJson(total),
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
 * Returns a report as CSV with a header line. The row of the other groups has `true` in the column `rest`, and a row with
 * a number at the limit of its type has it in `limited`.
 */
function csvOf({ rows }: ReportUsageResponse, groupBy: readonly string[]): ContentResponse {
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
