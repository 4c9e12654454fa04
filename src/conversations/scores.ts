import { create } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import {
	type DeleteScoreRequest,
	type ListScoresRequest,
	type ListScoresResponse,
	ListScoresResponseSchema,
	type NewScore,
	type ReportScoresRequest,
	type ReportScoresResponse,
	ReportScoresResponseSchema,
	ScoreSource,
	ScoreSourceSchema,
	type SetScoresRequest,
} from "../../gen/conversations/v1/score_service_pb.js";
import { type AuditedCaller, entryOf } from "../access/audit.ts";
import { invalid, ServiceError } from "../errors.ts";
import { fromValue, toValue } from "../record/json/json-form.ts";
import { fromMicroseconds } from "../record/json/scalars.ts";
import { planEnum } from "../record/plan.ts";
import type { ScoreSums } from "../store/score-report.ts";
import { CRITIC, type GivenScore, isScore, MAX_COMMENT, MAX_NUMBER, type ScoreValue } from "../store/scores.ts";
import { keyOf } from "../store/values.ts";
import { REDACTED, replaceUserinfo } from "../userinfo.ts";
import { conditionsOf, scoreName, timeBound, uuid, wellFormed } from "./read/filter.ts";
import { pageSize, readPageToken, writePageToken } from "./read/page.ts";
import { groupsOf, MAX_ROWS, tooMany } from "./read/report-usage.ts";
import type { StoreReads } from "./read/visible-store.ts";

/** Maximum number of scores in a batch. */
const MAX_BATCH = 1_000;
/** Maximum characters (Unicode code points) of a category. */
const MAX_CATEGORY = 64;
/** Names that mean something else: in filters, and for the results of critics. */
const RESERVED: readonly string[] = ["none", CRITIC];
const LIST = "scores";
const { byName: SOURCES, byNumber: SOURCE_NAMES } = planEnum(ScoreSourceSchema);
const DAY_MILLISECONDS = 86_400_000;
/** What a report can be grouped by, besides the tags of a key. */
export const SCORE_GROUPS = ["model", "agent_kind", "sender", "owner", "day"] as const;

type ScoreStore = Pick<StoreReads, "setScores" | "deleteScore" | "listScores" | "reportScores" | "getOwnership">;

/**
 * What callers do with scores. All of it fails with a ServiceError: `invalid_argument` that names the field, or `not_found`.
 *
 * @param store limited to what the callers can see
 */
export function scoresOf(store: ScoreStore) {
	return { set, list, remove, report };

	/** Gives at most {@link MAX_BATCH} scores, all or none. An error names the first wrong one, as in `scores[3].value`. */
	async function set({ scores }: Pick<SetScoresRequest, "scores">, caller: AuditedCaller) {
		if (scores.length === 0 || scores.length > MAX_BATCH)
			throw invalid("scores", `must have 1 to ${MAX_BATCH} entries`);
		const given = scores.map((score, n) => givenScore(score, `scores[${n}].`, caller.name));
		const audit = entryOf("score.changed", caller, "");
		return { changed: BigInt(await store.setScores({ scores: given, owner: undefined, audit })) };
	}

	/** Lists the scores of a conversation. One that is given or deleted between two pages can shift the later one. */
	async function list(request: Omit<ListScoresRequest, "$typeName">): Promise<ListScoresResponse> {
		const conversationId = uuid(request.conversationId, "conversation_id");
		const name = request.name === "" ? undefined : scoreName(request.name, "name");
		const limit = pageSize(request.pageSize);
		const scope = { conversationId, name };
		const [skipped = 0n] = readPageToken(LIST, scope, request.pageToken);
		if ((await store.getOwnership(conversationId)) === undefined)
			throw new ServiceError("not_found", "Conversation not found");
		const found = await store.listScores({ conversationId, name, skipped: Number(skipped), limit: limit + 1 });
		return create(ListScoresResponseSchema, {
			scores: found.slice(0, limit).map((score) => ({
				conversationId,
				eventId: score.eventId,
				name: score.name,
				value: scoreValue({ ...score, shown: score.category ?? "" }),
				comment: score.comment,
				source: SOURCES.get(score.source) ?? ScoreSource.UNSPECIFIED,
				giver: score.giver,
				givenAt: fromMicroseconds(score.givenAt),
			})),
			nextPageToken: found.length > limit ? writePageToken(LIST, scope, skipped + BigInt(limit)) : "",
		});
	}

	async function remove(request: Omit<DeleteScoreRequest, "$typeName">, caller: AuditedCaller) {
		const isDeleted = await store.deleteScore({
			conversationId: uuid(request.conversationId, "conversation_id"),
			eventId: keyOf(wellFormed(request.eventId, "event_id")),
			name: ownName(request.name, "name"),
			giver: request.giver === "" ? caller.name : wellFormed(request.giver, "giver"),
			owner: undefined,
			audit: entryOf("score.deleted", caller, ""),
		});
		if (!isDeleted) throw new ServiceError("not_found", "There is no such score");
		return {};
	}

	async function report(request: Omit<ReportScoresRequest, "$typeName">): Promise<ReportScoresResponse> {
		const { from, to, groupBy } = request;
		const groups = groupsOf(groupBy, SCORE_GROUPS);
		const { rows, categories, all } = await store.reportScores({
			name: scoreName(request.name, "name"),
			from: from && timeBound(from, "from"),
			to: to && timeBound(to, "to"),
			groups,
			conditions: conditionsOf(request.filter),
			limit: MAX_ROWS,
		});
		if (rows.length > MAX_ROWS || categories.length > MAX_ROWS) throw tooMany("rows: ask for fewer groups");
		const dateOf = (days: string) => new Date(Number(days) * DAY_MILLISECONDS).toISOString().slice(0, 10);
		const day = groups.findIndex(({ kind }) => kind === "day");
		const categoriesOf = Map.groupBy(categories, ({ group }) => JSON.stringify(group));
		const reported = [...Map.groupBy(rows, ({ group }) => JSON.stringify(group))].map(([key, sums]) => ({
			group: (sums[0]?.group ?? []).map((value, n) => (n === day ? dateOf(value) : value)),
			scores: totalsOf(sums, categoriesOf.get(key)),
		}));
		reported.sort((a, b) => {
			const [one = "", other = ""] = [a.group[day], b.group[day]];
			if (one !== other) return one < other ? -1 : 1;
			return Number(b.scores.count - a.scores.count) || (String(a.group) < String(b.group) ? -1 : 1);
		});
		return create(ReportScoresResponseSchema, { rows: reported, total: totalsOf(all, categories) });
	}
}

/** @param at path to the score, with a dot, for errors */
function givenScore(score: NewScore, at: string, giver: string): GivenScore {
	const { comment, source } = score;
	if ([...wellFormed(comment, `${at}comment`)].length > MAX_COMMENT)
		throw invalid(`${at}comment`, `must have at most ${MAX_COMMENT} characters`);
	const from = SOURCE_NAMES.get(source === ScoreSource.UNSPECIFIED ? ScoreSource.PROGRAM : source);
	if (from === undefined || source === ScoreSource.CRITIC) throw invalid(`${at}source`, "must be person or program");
	return {
		conversationId: uuid(score.conversationId, `${at}conversation_id`),
		eventId: keyOf(wellFormed(score.eventId, `${at}event_id`)),
		name: ownName(score.name, `${at}name`),
		giver,
		source: from,
		comment: replaceUserinfo(comment, () => REDACTED),
		...givenValue(score.value, `${at}value`),
	};
}

function ownName(name: string, field: string): string {
	if (RESERVED.includes(name)) throw invalid(field, `must not be ${RESERVED.join(" or ")}`);
	return scoreName(name, field);
}

function givenValue(given: Value | undefined, field: string): Pick<GivenScore, "kind" | "value" | "category"> {
	const value = given && fromValue(given);
	if (typeof value === "boolean") return { kind: "boolean", value: Number(value), category: undefined };
	if (isScore(value)) return { kind: "number", value, category: undefined };
	if (typeof value !== "string")
		throw invalid(field, `must be true, false, a category, or a number from -${MAX_NUMBER} to ${MAX_NUMBER}`);
	const category = replaceUserinfo(wellFormed(value, field), () => REDACTED);
	if (category === "" || [...category].length > MAX_CATEGORY)
		throw invalid(field, `must be a category of 1 to ${MAX_CATEGORY} characters`);
	return { kind: "category", value: undefined, category };
}

/** Returns the value of a score. The mean of booleans is a number, unless all are equal. */
export function scoreValue({ kind, value = 0, shown }: Pick<ScoreValue, "kind" | "value" | "shown">): Value {
	if (kind === "category") return toValue(shown);
	return toValue(kind === "boolean" && (value === 0 || value === 1) ? value === 1 : value);
}

function totalsOf(sums: readonly ScoreSums[], ofCategories: readonly ScoreSums[] = []) {
	const sum = (of: "count" | "total" | "conversations" | "withoutCost" | "cost", rows = sums) =>
		rows.reduce((all, row) => all + row[of], 0);
	const mean = (of: string) => {
		const rows = sums.filter(({ kind }) => kind === of);
		return rows.length === 0 ? undefined : sum("total", rows) / sum("count", rows);
	};
	const categories = Map.groupBy(ofCategories, ({ category }) => category);
	categories.delete(undefined);
	return {
		count: BigInt(sum("count")),
		mean: mean("number"),
		shareTrue: mean("boolean"),
		categories: Object.fromEntries([...categories].map(([category, rows]) => [category, BigInt(sum("count", rows))])),
		conversations: BigInt(sum("conversations")),
		cost: sum("cost"),
		conversationsWithoutCost: BigInt(sum("withoutCost")),
	};
}
