import { type Score, ScoreSchema } from "../../gen/conversations/v1/score_service_pb.js";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import { inOrder } from "../events/event-parts.ts";
import { readExactJson, stringifyExactJson } from "../record/json/exact-json.ts";
import { jsonFormOf } from "../record/json/json-form.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	listOf,
	memberOf,
	textOf,
} from "../record/json/json-value.ts";
import { formatDateTime, fromMicroseconds, toMicroseconds } from "../record/json/scalars.ts";
import { planMessage } from "../record/plan.ts";

const scorePlan = planMessage(ScoreSchema);
/** Version of the Agent Trajectory Interchange Format that {@link atifOf} writes. */
const ATIF_VERSION = "ATIF-v1.8";

/** An event of a conversation. */
export interface TrajectoryEvent {
	readonly sequence: bigint;
	readonly happenedAt: bigint;
	/** JSON text with its secrets redacted; undefined when the stored event cannot be read. */
	readonly text: string | undefined;
}

/** A conversation of which a trajectory is made. */
export interface TrajectorySource {
	readonly summary: ConversationSummary;
	/** The record with its secrets redacted; undefined when there is none. */
	readonly record: ExactJson | undefined;
	readonly events: readonly TrajectoryEvent[];
	/** Its scores and those of its events, in the order in which they are listed. */
	readonly scores: readonly Score[];
	/** The conversations that it began, the earliest first. */
	readonly children: readonly TrajectorySource[];
}

interface Step {
	readonly happenedAt: bigint;
	readonly members: ExactJsonObject;
	readonly calls: ExactJsonObject[];
	readonly results: { readonly callId: string | undefined; readonly at: bigint; readonly members: ExactJsonObject }[];
	readonly eventIds: string[];
}

/**
 * Returns the trajectory of a conversation: its messages, tool calls and results in the order in which they happened, with
 * those of its sub-agents. What is left out is counted in `extra.left_out`. Scores of an event are in the `extra` of its step, and
 * all others in that of the trajectory. Equal sources have equal trajectories.
 *
 * @returns undefined when no event makes a step, because a trajectory has at least one
 */
export function atifOf(source: TrajectorySource): ExactJsonObject | undefined {
	const { summary, record } = source;
	const maker = new StepMaker(usagesOf(record));
	for (const { happenedAt, event } of orderOf(source.events)) maker.add(happenedAt, event);
	const { steps, leftOut, tools } = maker;
	if (steps.length === 0) return undefined;
	const children = source.children.flatMap((child) => {
		const trajectory = atifOf(child);
		if (trajectory === undefined) leftOut.subagents_without_steps = Number(leftOut.subagents_without_steps ?? 0) + 1;
		else addReference(steps, child.summary);
		return trajectory ?? [];
	});
	const withoutResult = steps.flatMap(({ calls, results }) =>
		calls.filter((call) => !results.some(({ callId }) => callId === call.tool_call_id)),
	).length;
	const { id, title, tags, parentConversationId, forkedFromConversationId, gaps } = summary;
	const state = memberOf(record, "agent_state");
	const ofEvents = Map.groupBy(source.scores, ({ eventId }) => eventId);
	const scored = steps.map(({ eventIds }) => eventIds.flatMap((eventId) => ofEvents.get(eventId) ?? []));
	const inSteps = new Set(scored.flat());
	const others = source.scores.filter((score) => !inSteps.has(score));
	const counts: ExactJsonObject = { ...leftOut, ...(withoutResult === 0 ? {} : { results_of_calls: withoutResult }) };
	return {
		schema_version: ATIF_VERSION,
		session_id: id,
		trajectory_id: id,
		agent: {
			name: textOf(memberOf(state, "acp_agent_name"), summary.agentKind || "unknown"),
			version: textOf(memberOf(state, "acp_agent_version"), "unknown"),
			...(summary.model === "" ? {} : { model_name: summary.model }),
			...(tools.length === 0 ? {} : { tool_definitions: tools }),
		},
		steps: steps.map((step, n) => stepJson(step, n, scored[n] ?? [])),
		...(Object.keys(counts).length === 0 ? {} : { notes: "extra.left_out counts what this trajectory leaves out." }),
		final_metrics: finalMetrics(summary, steps.length),
		extra: {
			...(title === undefined ? {} : { title }),
			execution_status: textOf(memberOf(record, "execution_status"), "unknown"),
			tags: { ...tags },
			...(parentConversationId === undefined ? {} : { parent_conversation_id: parentConversationId }),
			...(forkedFromConversationId === undefined ? {} : { forked_from_conversation_id: forkedFromConversationId }),
			...(gaps === undefined ? {} : { known_gaps: gaps.count }),
			...scoresJson(others),
			left_out: counts,
		},
		...(children.length === 0 ? {} : { subagent_trajectories: children }),
	};
}

/** Returns the events of a conversation in the order in which they happened: see {@link inOrder}. */
function orderOf(events: readonly TrajectoryEvent[]) {
	const read = events
		.toSorted((a, b) => Number(a.sequence - b.sequence))
		.map(({ happenedAt, text }) => {
			const event = text === undefined ? undefined : readExactJson(text);
			const idIn = (name: string) => textOf(memberOf(event, name));
			const follows = [idIn("parent_id"), idIn("action_id")].filter((id) => id !== "");
			return { id: idIn("id"), at: happenedAt, follows, happenedAt, event };
		});
	return inOrder(read);
}

/** Makes the steps of a conversation from its events. Events that make no step are counted by their kind. */
class StepMaker {
	readonly steps: Step[] = [];
	readonly leftOut: ExactJsonObject = {};
	tools: ExactJson[] = [];
	readonly #usages: ReadonlyMap<string, ExactJson>;
	readonly #byCall = new Map<string, Step>();
	readonly #byAction = new Map<string, { readonly step: Step; readonly callId: string }>();
	#last: { readonly responseId: string; readonly step: Step } | undefined;

	constructor(usages: ReadonlyMap<string, ExactJson>) {
		this.#usages = usages;
	}

	/** @param event undefined when the stored event cannot be read */
	add(happenedAt: bigint, event: ExactJson | undefined): void {
		if (event === undefined) {
			this.#leaveOut("unreadable");
			return;
		}
		const eventId = textOf(memberOf(event, "id"));
		const kind = textOf(memberOf(event, "kind"), "unknown");
		switch (kind) {
			case "SystemPromptEvent": {
				const parts = [memberOf(event, "system_prompt"), memberOf(event, "dynamic_context")];
				const message = this.#textOf(parts.filter((part) => part != null));
				this.#step(happenedAt, eventId, { source: "system", message });
				this.tools = toolsOf(memberOf(event, "tools"));
				return;
			}
			case "MessageEvent":
				this.#message(happenedAt, eventId, event);
				return;
			case "ActionEvent":
				this.#action(happenedAt, eventId, event);
				return;
			case "ACPToolCallEvent":
				this.#acpCall(happenedAt, eventId, event);
				return;
			case "ObservationEvent":
			case "UserRejectObservation":
			case "AgentErrorEvent":
				this.#result(happenedAt, eventId, event, kind);
				return;
			case "ConversationErrorEvent": {
				const [code, detail] = [textOf(memberOf(event, "code")), textOf(memberOf(event, "detail"), "")];
				this.#step(happenedAt, eventId, { source: "system", message: `${code}: ${detail}` }, { kind });
				return;
			}
			default:
				this.#leaveOut(kind);
		}
	}

	#message(at: bigint, eventId: string, event: ExactJson): void {
		const message = memberOf(event, "llm_message");
		const role = memberOf(message, "role");
		const isAgent = role === "assistant";
		const source = isAgent ? "agent" : role === "user" ? "user" : "system";
		const more = [...listOf(memberOf(message, "content")), ...listOf(memberOf(event, "extended_content"))];
		this.#step(at, eventId, {
			source,
			message: this.#textOf(more),
			...(isAgent ? this.#ofModel(event, memberOf(message, "reasoning_content")) : {}),
		});
	}

	#action(at: bigint, eventId: string, event: ExactJson): void {
		const responseId = textOf(memberOf(event, "llm_response_id"));
		const isSame = responseId !== "" && this.#last?.responseId === responseId;
		// Calls of one response of the model are one step.
		const step =
			(isSame ? this.#last?.step : undefined) ??
			this.#step(at, eventId, {
				source: "agent",
				message: this.#textOf(listOf(memberOf(event, "thought"))),
				...this.#ofModel(event, memberOf(event, "reasoning_content")),
			});
		if (isSame) step.eventIds.push(eventId);
		this.#last = { responseId, step };
		const call = memberOf(event, "tool_call");
		const callId = textOf(memberOf(event, "tool_call_id"), eventId);
		this.#byAction.set(eventId, { step, callId });
		this.#call(step, callId, {
			function_name: textOf(memberOf(call, "name"), textOf(memberOf(event, "tool_name"), "unknown")),
			...argumentsOf(memberOf(call, "arguments")),
		});
	}

	/** Adds a call of a remote agent's tool, or what a later event of the same call reports. */
	#acpCall(at: bigint, eventId: string, event: ExactJson): void {
		const callId = textOf(memberOf(event, "tool_call_id"), eventId);
		const known = this.#byCall.get(callId);
		const step = known ?? this.#step(at, eventId, { source: "agent", message: "" });
		const call =
			step.calls.find((one) => one.tool_call_id === callId) ??
			this.#call(step, callId, { function_name: "", arguments: {} });
		if (known !== undefined) step.eventIds.push(eventId);
		const title = textOf(memberOf(event, "title"));
		call.function_name = textOf(memberOf(event, "tool_kind")) || title || String(call.function_name) || "unknown";
		const input = memberOf(event, "raw_input");
		if (input != null) Object.assign(call, argumentsOf(input));
		if (title !== "") call.extra = { title };
		const output = memberOf(event, "content") ?? memberOf(event, "raw_output");
		const status = textOf(memberOf(event, "status"));
		if (output == null && status !== "completed" && status !== "failed") return;
		const content = typeof output === "string" ? output : output == null ? "" : stringifyExactJson(output);
		const n = step.results.findIndex((one) => one.callId === callId);
		const result = { callId, at, members: { content, extra: { is_error: memberOf(event, "is_error") === true } } };
		if (n === -1) step.results.push(result);
		else step.results[n] = result;
	}

	#result(at: bigint, eventId: string, event: ExactJson, kind: string): void {
		const observation = memberOf(event, "observation");
		const content =
			kind === "ObservationEvent"
				? this.#textOf([...contentOf(observation), ...listOf(memberOf(event, "extended_content"))])
				: textOf(memberOf(event, kind === "AgentErrorEvent" ? "error" : "rejection_reason"));
		const isError = kind !== "ObservationEvent" || memberOf(observation, "is_error") === true;
		const action = this.#byAction.get(textOf(memberOf(event, "action_id")));
		const callId = action?.callId ?? textOf(memberOf(event, "tool_call_id"));
		const known = action?.step ?? this.#byCall.get(callId);
		const step = known ?? this.#step(at, eventId, { source: "system", message: "" });
		if (known !== undefined) step.eventIds.push(eventId);
		const extra = { is_error: isError, ...(kind === "ObservationEvent" ? {} : { kind }) };
		step.results.push({ callId: known && callId, at, members: { content, extra } });
	}

	#step(happenedAt: bigint, eventId: string, members: ExactJsonObject, extra: ExactJsonObject = {}): Step {
		const step = { happenedAt, members: { ...members, extra }, calls: [], results: [], eventIds: [eventId] };
		this.steps.push(step);
		this.#last = undefined;
		return step;
	}

	#call(step: Step, callId: string, members: ExactJsonObject): ExactJsonObject {
		const call = { tool_call_id: callId, ...members };
		step.calls.push(call);
		this.#byCall.set(callId, step);
		return call;
	}

	/** Returns what is known of the model's work for a step. */
	#ofModel(event: ExactJson, reasoning: ExactJson | undefined): ExactJsonObject {
		const responseId = memberOf(event, "llm_response_id");
		if (typeof responseId !== "string") return {};
		const usage = this.#usages.get(responseId);
		const model = memberOf(usage, "model");
		return {
			...(typeof model === "string" && model !== "" ? { model_name: model } : {}),
			...(typeof reasoning === "string" && reasoning !== "" ? { reasoning_content: reasoning } : {}),
			...(usage === undefined ? {} : { metrics: metricsOf(usage) }),
			llm_call_count: 1,
		};
	}

	/** Returns the texts of content, and counts what is not text. */
	#textOf(content: readonly (ExactJson | undefined)[]): string {
		const texts = content.flatMap((part) => {
			const text = memberOf(part, "text");
			if (typeof text === "string") return [text];
			this.#leaveOut(`content of type ${textOf(memberOf(part, "type"), "unknown")}`);
			return [];
		});
		return texts.join("\n");
	}

	#leaveOut(what: string): void {
		this.leftOut[what] = Number(Object.hasOwn(this.leftOut, what) ? this.leftOut[what] : 0) + 1;
	}
}

/** Lets the call during which a sub-agent began refer to its trajectory, if there is exactly one. */
function addReference(steps: readonly Step[], { id, createdAt }: ConversationSummary): void {
	if (createdAt === undefined) return;
	const began = toMicroseconds(createdAt);
	const found = steps.flatMap(({ happenedAt, calls, results }) =>
		happenedAt > began || calls.length === 0
			? []
			: results.filter(({ callId, at }) => callId !== undefined && at >= began),
	);
	const [result, ...others] = found;
	if (result === undefined || others.length > 0) return;
	const references = listOf(result.members.subagent_trajectory_ref);
	result.members.subagent_trajectory_ref = [...references, { trajectory_id: id, session_id: id }];
}

function stepJson(
	{ happenedAt, members: { extra, ...members }, calls, results, eventIds }: Step,
	index: number,
	scores: readonly Score[],
): ExactJsonObject {
	return {
		step_id: index + 1,
		timestamp: formatDateTime(fromMicroseconds(happenedAt)),
		...members,
		...(calls.length === 0 ? {} : { tool_calls: calls }),
		...(results.length === 0
			? {}
			: {
					observation: {
						results: results.map(({ callId, members }) => ({
							...(callId === undefined ? {} : { source_call_id: callId }),
							...members,
						})),
					},
				}),
		extra: { ...(isJsonObject(extra) ? extra : {}), event_ids: eventIds, ...scoresJson(scores) },
	};
}

/** Returns scores as they are listed; nothing if there are none. */
function scoresJson(scores: readonly Score[]): ExactJsonObject {
	return scores.length === 0 ? {} : { scores: scores.map((score) => jsonFormOf(scorePlan, score)) };
}

/** Returns the token usage of each response of a model that the record names. */
function usagesOf(record: ExactJson | undefined): ReadonlyMap<string, ExactJson> {
	const byUsage = memberOf(memberOf(record, "stats"), "usage_to_metrics");
	const usages = Object.values(isJsonObject(byUsage) ? byUsage : {}).flatMap((one) =>
		listOf(memberOf(one, "token_usages")),
	);
	return new Map(usages.map((usage) => [textOf(memberOf(usage, "response_id")), usage]));
}

function metricsOf(usage: ExactJson): ExactJsonObject {
	const count = (name: string) => memberOf(usage, name) ?? 0;
	return {
		prompt_tokens: count("prompt_tokens"),
		completion_tokens: count("completion_tokens"),
		cached_tokens: count("cache_read_tokens"),
		extra: { cache_write_tokens: count("cache_write_tokens"), reasoning_tokens: count("reasoning_tokens") },
	};
}

/** What the record does not report is left out. */
function finalMetrics({ tokens, accumulatedCost }: ConversationSummary, steps: number): ExactJsonObject {
	const totals = tokens && {
		total_prompt_tokens: tokens.promptTokens,
		total_completion_tokens: tokens.completionTokens,
		total_cached_tokens: tokens.cacheReadTokens,
		extra: { cache_write_tokens: tokens.cacheWriteTokens, reasoning_tokens: tokens.reasoningTokens },
	};
	return {
		...totals,
		...(accumulatedCost === undefined ? {} : { total_cost_usd: accumulatedCost }),
		total_steps: steps,
	};
}

/** Returns the tools of an agent as definitions of functions. Their parameters are not in the events. */
function toolsOf(tools: ExactJson | undefined): ExactJson[] {
	return listOf(tools).map((tool) => {
		const text = (name: string, otherwise?: string) => textOf(memberOf(tool, name), otherwise);
		const name = text("name", text("title", text("kind", "unknown")));
		return { type: "function", function: { name, description: text("description") } };
	});
}

/**
 * Returns the arguments of a call as an object. A text that is no JSON object is kept beside it, and so is one whose strings
 * cannot be encoded in UTF-8.
 */
function argumentsOf(given: ExactJson | undefined): ExactJsonObject {
	let parsed = given;
	if (typeof given === "string")
		try {
			parsed = readExactJson(given);
		} catch {}
	if (isJsonObject(parsed) && isWellFormed(parsed)) return { arguments: parsed };
	return given == null ? { arguments: {} } : { arguments: {}, extra: { raw_arguments: given } };
}

/** Whether no string has a lone surrogate, which an escape in a text can produce (RFC 8259, section 8.2). */
function isWellFormed(json: ExactJson): boolean {
	if (typeof json === "string") return json.isWellFormed();
	if (Array.isArray(json)) return json.every(isWellFormed);
	return (
		!isJsonObject(json) || Object.entries(json).every(([name, value]) => name.isWellFormed() && isWellFormed(value))
	);
}

/** Returns the content of an observation: a list of parts, a text, or else the observation itself. */
function contentOf(observation: ExactJson | undefined): ExactJson[] {
	const content = memberOf(observation, "content") ?? memberOf(observation, "output");
	if (Array.isArray(content)) return content;
	if (typeof content === "string") return [{ type: "text", text: content }];
	return observation == null ? [] : [{ type: "text", text: stringifyExactJson(observation) }];
}
