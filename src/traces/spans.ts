import { createHash } from "node:crypto";
import type { Score } from "../../gen/conversations/v1/score_service_pb.js";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import { fromValue } from "../record/json/json-form.ts";
import { type ExactJson, type ExactJsonObject, memberOf, textOf } from "../record/json/json-value.ts";
import { toMicroseconds } from "../record/json/scalars.ts";
import type { Fact, Facts } from "./facts.ts";
import { type Chat, isCallOf, type Run, runsOf, type Tool } from "./runs.ts";

/** A conversation of which spans are made. */
export interface TraceSource {
	readonly summary: ConversationSummary;
	/** The record with its secrets redacted; undefined when there is none. */
	readonly record: ExactJson | undefined;
	readonly facts: Facts;
	/** Its scores and those of its events. */
	readonly scores: readonly Score[];
	readonly runs: readonly Run[];
	/** The conversation that began this one, if it is known. */
	readonly parent: TraceSource | undefined;
}

export type Attributes = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/** A span. Ids are in hexadecimal, times are microseconds since the Unix epoch. */
export interface Span {
	readonly traceId: string;
	readonly spanId: string;
	readonly parentId: string | undefined;
	readonly name: string;
	readonly kind: "internal" | "client";
	readonly start: bigint;
	readonly end: bigint;
	readonly attributes: Attributes;
	readonly error: { readonly type: string; readonly message: string } | undefined;
	readonly events: readonly SpanEvent[];
}

interface SpanEvent {
	readonly name: string;
	readonly at: bigint;
	readonly attributes: Attributes;
}

/** The spans of a run. */
export interface RunTrace {
	readonly run: Run;
	/** The first one is that of the run. */
	readonly spans: readonly Span[];
}

/** A score of a run, with what is known of its event. */
interface RunScore {
	readonly score: Score;
	readonly at: bigint;
	readonly fact: Fact | undefined;
}

type Place = Pick<Span, "traceId" | "parentId">;

/**
 * Returns the spans of each run of a conversation, by the semantic conventions of OpenTelemetry for generative AI. Ids
 * derive from the ids of the conversation and its events, so equal sources have equal spans. A run of a conversation that
 * another one began is below the call of a tool that was under way there; if it was not exactly one, below the run.
 */
export function tracesOf(source: TraceSource): RunTrace[] {
	const scores = scoresByRun(source);
	return source.runs.map((run) => ({ run, spans: spansOf(source, run, placeOf(source, run), scores.get(run) ?? []) }));
}

/** Returns the scores of each run: those of its events, and the others that were given after it began, before the next one did. */
function scoresByRun({ runs, scores }: TraceSource): ReadonlyMap<Run | undefined, readonly RunScore[]> {
	const known = new Map(runs.flatMap((run) => run.facts.map((fact) => [fact.id, { run, fact }] as const)));
	// An event that cannot be read has no id.
	known.delete("");
	const judged = scores.map((score) => {
		const at = score.givenAt === undefined ? 0n : toMicroseconds(score.givenAt);
		const latest = runs.findLast(({ start }) => start <= at) ?? runs[0];
		return { score, at, ...(known.get(score.eventId) ?? { run: latest, fact: undefined }) };
	});
	return Map.groupBy(judged, ({ run }) => run);
}

const REMOTE_AGENT = "ACPAgent";

export function withRuns(source: Omit<TraceSource, "runs">): TraceSource {
	// The events of a remote agent do not tell its calls of models.
	return { ...source, runs: runsOf(source.facts, source.summary.agentKind !== REMOTE_AGENT) };
}

function placeOf({ summary, parent }: TraceSource, { id, start }: Run): Place {
	const outer = parent?.runs.findLast((one) => one.start <= start);
	if (parent === undefined || outer === undefined)
		return { traceId: hash(32, "trace", summary.id, id), parentId: undefined };
	const { traceId } = placeOf(parent, outer);
	const open = outer.tools.filter((tool) => tool.start <= start && (tool.result === undefined || tool.end >= start));
	const [call, ...others] = open;
	const isOne = call !== undefined && others.length === 0;
	return { traceId, parentId: isOne ? toolId(parent, outer, call) : runSpanId(parent, outer) };
}

function runSpanId({ summary }: TraceSource, run: Run): string {
	return hash(16, "run", summary.id, run.id);
}

function toolId({ summary }: TraceSource, run: Run, { id, n }: Tool): string {
	return hash(16, "tool", summary.id, run.id, id, ...(n === 0 ? [] : [String(n)]));
}

function hash(digits: number, ...parts: readonly string[]): string {
	return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, digits);
}

function spansOf(
	source: TraceSource,
	run: Run,
	{ traceId, parentId }: Place,
	scores: readonly RunScore[],
): readonly Span[] {
	const { summary, record } = source;
	const { facts } = run;
	const rootId = runSpanId(source, run);
	const state = memberOf(record, "agent_state");
	const agent = {
		"gen_ai.agent.name": textOf(memberOf(state, "acp_agent_name")) || summary.agentKind,
		"gen_ai.agent.version": textOf(memberOf(state, "acp_agent_version")),
	};
	const common = { "gen_ai.conversation.id": summary.id };
	const error = facts.find((fact) => fact.error !== undefined)?.error;
	const hasFailed = error !== undefined || run.status === "error" || run.status === "stuck";
	const errorType = error?.code ?? run.status ?? "";
	const instructions = facts.flatMap(({ systemPrompt: content }) => {
		return content === undefined ? [] : [{ type: "text", content }];
	});
	const cost = source.facts.costBetween(run.start, run.nextStart);
	const name = named("invoke_agent", agent["gen_ai.agent.name"]);
	const root: Omit<Span, "events"> = {
		...{ traceId, spanId: rootId, parentId, name, kind: "internal", start: run.start, end: run.end },
		attributes: given({
			...{ "gen_ai.operation.name": "invoke_agent", ...common, ...agent, ...modelOf(summary.model) },
			"conversations.status": run.status ?? "",
			...(cost === undefined ? {} : { "conversations.cost": cost }),
			"conversations.gaps": facts.filter(({ isGap }) => isGap).length,
			"conversations.end_missing": run.status === undefined,
			"gen_ai.system_instructions": json(instructions),
			"gen_ai.input.messages": json(inputOf(facts.filter(({ prompt }) => prompt !== undefined))),
			"gen_ai.output.messages": json(outputOf(facts.filter(({ output }) => output !== undefined).slice(-1))),
		}),
		error: hasFailed ? { type: errorType, message: error?.detail || errorType } : undefined,
	};
	const chats = run.chats.map((chat): Omit<Span, "events"> => {
		const model = chat.usage?.model || summary.model;
		const spanId = hash(16, "chat", summary.id, run.id, chat.responseId, String(chat.n));
		return {
			...{ traceId, spanId, parentId: rootId, name: named("chat", model), kind: "client" },
			...{ start: chat.start, end: chat.end, error: undefined },
			attributes: given({
				...{ "gen_ai.operation.name": "chat", ...common, ...modelOf(model), "gen_ai.response.id": chat.responseId },
				...(chat.facts.length === 0 ? {} : { "gen_ai.response.finish_reasons": [finishOf(chat.facts)] }),
				...usageOf(chat),
				"conversations.start_estimated": chat.isEstimated,
				"gen_ai.input.messages": json(inputOf(newFor(chat, run))),
				"gen_ai.output.messages": json(outputOf(chat.facts)),
			}),
		};
	});
	const tools = run.tools.map((tool): Omit<Span, "events"> => {
		const { call, result } = tool;
		const toolName = tool.name || "unknown";
		const type = result?.error;
		return {
			...{ traceId, spanId: toolId(source, run, tool), parentId: rootId, name: named("execute_tool", toolName) },
			...{ kind: "internal", start: tool.start, end: tool.end },
			attributes: given({
				...{ "gen_ai.operation.name": "execute_tool", ...common, "gen_ai.tool.name": toolName },
				...{ "gen_ai.tool.call.id": tool.id, "gen_ai.tool.type": "function" },
				"conversations.start_estimated": call === undefined,
				"conversations.call_missing": call === undefined,
				"conversations.result_missing": result === undefined,
				"gen_ai.tool.call.arguments": call?.arguments ?? "",
				"gen_ai.tool.call.result": result?.content ?? "",
			}),
			error: type === undefined ? undefined : { type, message: result?.content ?? "" },
		};
	});
	/** Returns the span of an event: the call of a model that it is part of, or else the call of a tool. */
	const spanOf = ({ responseId, call, result }: Fact) =>
		chats[run.chats.findIndex((one) => one.responseId === responseId && one.n === 0)] ??
		tools[run.tools.findIndex((one) => (result && one.result === result) || isCallOf(one, call))];
	const judged = Map.groupBy(scores, ({ fact }) => (fact && spanOf(fact))?.spanId ?? rootId);
	return [root, ...chats, ...tools].map((span) => ({
		...span,
		events: judged.get(span.spanId)?.map(evaluation) ?? [],
	}));
}

/** Returns a score as an event by the conventions. The value of a boolean is 0 or 1. */
function evaluation({ score, at, fact }: RunScore): SpanEvent {
	const value = score.value && fromValue(score.value);
	return {
		name: "gen_ai.evaluation.result",
		at,
		attributes: {
			"gen_ai.evaluation.name": score.name,
			...(typeof value === "string" ? {} : { "gen_ai.evaluation.score.value": Number(value) }),
			...(typeof value === "number" ? {} : { "gen_ai.evaluation.score.label": String(value) }),
			...(score.comment === "" ? {} : { "gen_ai.evaluation.explanation": score.comment }),
			...(fact?.responseId === undefined ? {} : { "gen_ai.response.id": fact.responseId }),
			"conversations.score.giver": score.giver,
		},
	};
}

function named(operation: string, name: string): string {
	return name === "" ? operation : `${operation} ${name}`;
}

function modelOf(model: string): Record<string, string> {
	// The names of models are those of LiteLLM, in which the provider precedes the model.
	const [, provider = ""] = /^([a-z_]+)\//.exec(model) ?? [];
	return { "gen_ai.request.model": model, "gen_ai.provider.name": provider };
}

function usageOf({ usage }: Chat): Attributes {
	if (usage === undefined) return {};
	return {
		"gen_ai.usage.input_tokens": usage.prompt,
		"gen_ai.usage.output_tokens": usage.completion,
		"gen_ai.usage.cache_read.input_tokens": usage.cacheRead,
		"gen_ai.usage.cache_creation.input_tokens": usage.cacheWrite,
		"gen_ai.usage.reasoning.output_tokens": usage.reasoning,
	};
}

function finishOf(facts: readonly Fact[]): string {
	return facts.some(({ call }) => call !== undefined) ? "tool_call" : "stop";
}

/** Returns what the model was given since the response before: all messages of the conversation would be too long. */
function newFor({ facts: own, responseId }: Chat, { facts }: Run): readonly Fact[] {
	const at = own[0] === undefined ? -1 : facts.indexOf(own[0]);
	const before = facts.findLastIndex(
		(fact, n) => n < at && fact.responseId !== undefined && fact.responseId !== responseId,
	);
	return at === -1 ? [] : facts.slice(before + 1, at);
}

function inputOf(facts: readonly Fact[]): ExactJsonObject[] {
	return facts.flatMap(({ prompt, result }): ExactJsonObject[] => [
		...(prompt === undefined || prompt.parts.length === 0 ? [] : [{ role: "user", parts: [...prompt.parts] }]),
		...(result?.content === undefined
			? []
			: [{ role: "tool", parts: [{ type: "tool_call_response", id: result.callId, response: result.content }] }]),
	]);
}

function outputOf(facts: readonly Fact[]): ExactJsonObject[] {
	const parts = facts.flatMap(({ output }) => output ?? []);
	return parts.length === 0 ? [] : [{ role: "assistant", parts, finish_reason: finishOf(facts) }];
}

function json(list: readonly ExactJsonObject[]): string {
	return list.length === 0 ? "" : stringifyExactJson([...list]);
}

/** Attributes of which 0 is known. */
const IS_AMOUNT = /^gen_ai\.usage\.|^conversations\.cost$/;

/** Leaves out what is not known: empty texts, `false` and zeros that are neither tokens nor a cost. */
function given(attributes: Attributes): Attributes {
	return Object.fromEntries(
		Object.entries(attributes).filter(
			([name, value]) => value !== "" && value !== false && (value !== 0 || IS_AMOUNT.test(name)),
		),
	);
}
