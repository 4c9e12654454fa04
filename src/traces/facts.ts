import { inOrder } from "../events/event-parts.ts";
import { readExactJson, stringifyExactJson } from "../record/json/exact-json.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	listOf,
	memberOf,
	textOf,
} from "../record/json/json-value.ts";
import { sumOfCosts } from "../record/stats.ts";

/** An event of a conversation. Times are microseconds since the Unix epoch. */
interface TraceEvent {
	readonly happenedAt: bigint;
	readonly receivedAt: bigint;
	/** JSON text with its secrets redacted; undefined when the stored event cannot be read. */
	readonly text: string | undefined;
}

/** What a trace needs of an event. Texts that people or models wrote are there only if content is wanted. */
export interface Fact {
	/** When it happened, and when it arrived. */
	readonly at: bigint;
	readonly receivedAt: bigint;
	/** Id of the event; empty when it cannot be read. */
	readonly id: string;
	/** Ids of events that happened before it. */
	readonly follows: readonly string[];
	/** Execution status that began. */
	readonly status?: string;
	/** A message of the user. */
	readonly prompt?: { readonly parts: readonly ExactJsonObject[] };
	readonly systemPrompt?: string;
	/** Id of the response of a model that the event is part of. */
	readonly responseId?: string;
	/** Parts of this response. */
	readonly output?: readonly ExactJsonObject[];
	readonly call?: ToolCall;
	readonly result?: ToolResult;
	/** An error of the whole run. */
	readonly error?: { readonly code: string; readonly detail: string };
	/** Whether something is known to be missing after it, or it cannot be read. */
	readonly isGap: boolean;
}

export interface ToolCall {
	readonly id: string;
	/** Id of the event that results of the call name; undefined for a call of a remote agent. */
	readonly actionId: string | undefined;
	readonly name: string;
	readonly arguments: string | undefined;
}

export interface ToolResult {
	readonly callId: string;
	/** Id of the event with the call; empty if the result does not name it. */
	readonly actionId: string;
	/** Empty when the event does not name it. */
	readonly tool: string;
	readonly content: string | undefined;
	/** Class of the error; undefined for a success. */
	readonly error: string | undefined;
}

/** Tokens of one call of a model, as records and full states list them. */
export interface Usage {
	readonly responseId: string;
	/** Number of calls with the same id of the response before it. */
	readonly n: number;
	readonly model: string;
	readonly prompt: number;
	readonly completion: number;
	readonly cacheRead: number;
	readonly cacheWrite: number;
	readonly reasoning: number;
	/** Microseconds until the response arrived; undefined when it is not known. */
	readonly latency: bigint | undefined;
	/** When an event first listed it; undefined when only the record does. */
	readonly shownAt: bigint | undefined;
}

/** An entry of a list of usages. */
interface Listed {
	/** Usage id of the list. */
	readonly list: string;
	readonly index: number;
	usage: Omit<Usage, "n">;
}

/** Collects what traces need of a conversation. Events are added in the order of the log. */
export class Facts {
	readonly #facts: Fact[] = [];
	readonly #usages = new Map<string, Listed>();
	/** The entries of the lists of costs. */
	readonly #costs = new Map<string, { readonly at: bigint; readonly cost: number }>();
	readonly #keepsContent: boolean;
	readonly #gapsAfter: ReadonlySet<string>;

	/**
	 * @param keepsContent whether texts of messages and of calls are kept
	 * @param gapsAfter ids of the events after which something is missing
	 */
	constructor(keepsContent: boolean, gapsAfter: ReadonlySet<string>) {
		this.#keepsContent = keepsContent;
		this.#gapsAfter = gapsAfter;
	}

	/** All facts, in the order of {@link inOrder}. That of equal times is the same whatever arrived first. */
	get facts(): readonly Fact[] {
		return inOrder(this.#facts, (a, b) => byName(a.id, b.id));
	}

	/** The calls of models that are listed, by the names of the lists and in their order. */
	get usages(): readonly Usage[] {
		const counts = new Map<string, number>();
		return [...this.#usages.values()]
			.toSorted((a, b) => byName(a.list, b.list) || a.index - b.index)
			.map(({ usage }) => {
				const n = counts.get(usage.responseId) ?? 0;
				counts.set(usage.responseId, n + 1);
				return { ...usage, n };
			});
	}

	/** Returns the costs of the calls from a time to before another one; undefined if the record lists no cost. */
	costBetween(from: bigint, to: bigint | undefined): number | undefined {
		if (this.#costs.size === 0) return undefined;
		const costs = [...this.#costs.values()].filter(({ at }) => at >= from && (to === undefined || at < to));
		return sumOfCosts(costs.map(({ cost }) => cost));
	}

	/**
	 * Adds lists of calls. An entry that is known stays as it is; so those of the record are added first.
	 *
	 * @param shownAt when an event showed them; undefined for those of the record
	 */
	addStats(stats: ExactJson | undefined, shownAt: bigint | undefined): void {
		const byUsage = memberOf(stats, "usage_to_metrics");
		for (const [list, metrics] of Object.entries(isJsonObject(byUsage) ? byUsage : {})) {
			const latencies = new Map(
				listOf(memberOf(metrics, "response_latencies")).map((one) => [
					textOf(memberOf(one, "response_id")),
					microseconds(memberOf(one, "latency")),
				]),
			);
			for (const [index, entry] of listOf(memberOf(metrics, "token_usages")).entries()) {
				const responseId = textOf(memberOf(entry, "response_id"));
				const count = (name: string) => numberOf(memberOf(entry, name));
				const shown = this.#usages.getOrInsertComputed(JSON.stringify([list, index]), () => ({
					...{ list, index },
					usage: {
						...{ responseId, model: textOf(memberOf(entry, "model")), latency: latencies.get(responseId), shownAt },
						...{ prompt: count("prompt_tokens"), completion: count("completion_tokens") },
						...{ cacheRead: count("cache_read_tokens"), cacheWrite: count("cache_write_tokens") },
						reasoning: count("reasoning_tokens"),
					},
				}));
				const known = shown.usage.shownAt;
				if (shownAt !== undefined && (known === undefined || shownAt < known))
					shown.usage = { ...shown.usage, shownAt };
			}
			for (const [index, entry] of listOf(memberOf(metrics, "costs")).entries())
				this.#costs.getOrInsertComputed(JSON.stringify([list, index]), () => ({
					at: microseconds(memberOf(entry, "timestamp")),
					cost: numberOf(memberOf(entry, "cost")),
				}));
		}
	}

	add({ happenedAt: at, receivedAt, text }: TraceEvent): void {
		if (text === undefined) {
			this.#facts.push({ at, receivedAt, id: "", follows: [], isGap: true });
			return;
		}
		const event = readExactJson(text);
		const id = textOf(memberOf(event, "id"));
		const isGap = this.#gapsAfter.has(id);
		const more = this.#factOf(event, id, at);
		const follows = ["parent_id", "action_id"].flatMap((name) => textOf(memberOf(event, name)) || []);
		if (isGap || Object.keys(more).length > 0) this.#facts.push({ at, receivedAt, id, follows, isGap, ...more });
	}

	#factOf(event: ExactJson, id: string, at: bigint): Partial<Fact> {
		const kind = textOf(memberOf(event, "kind"));
		const responseId = textOf(memberOf(event, "llm_response_id"));
		const response = responseId === "" ? {} : { responseId };
		switch (kind) {
			case "ConversationStateUpdateEvent": {
				const [key, value] = [memberOf(event, "key"), memberOf(event, "value")];
				if (key === "full_state") this.addStats(memberOf(value, "stats"), at);
				return key === "execution_status" ? { status: textOf(value) } : {};
			}
			case "SystemPromptEvent":
				return this.#keepsContent
					? { systemPrompt: cut(textOf(memberOf(memberOf(event, "system_prompt"), "text"))) }
					: {};
			case "MessageEvent": {
				const message = memberOf(event, "llm_message");
				const texts = this.#keepsContent
					? textsOf(memberOf(message, "content"), memberOf(event, "extended_content"))
					: [];
				const parts = texts.map((content) => ({ type: "text", content }));
				if (memberOf(message, "role") === "user") return { prompt: { parts } };
				const reasoning = this.#reasoning(memberOf(message, "reasoning_content"));
				return responseId === "" ? {} : { ...response, output: [...reasoning, ...parts] };
			}
			case "ActionEvent": {
				const asked = memberOf(event, "tool_call");
				const name = textOf(memberOf(asked, "name")) || textOf(memberOf(event, "tool_name"));
				const call = {
					...{ id: textOf(memberOf(event, "tool_call_id")) || id, actionId: id, name },
					arguments: this.#contentOf(memberOf(asked, "arguments") ?? memberOf(event, "action")),
				};
				const thoughts = this.#keepsContent ? textsOf(memberOf(event, "thought")) : [];
				const output = [
					...this.#reasoning(memberOf(event, "reasoning_content")),
					...thoughts.map((content) => ({ type: "text", content })),
					...(call.arguments === undefined
						? []
						: [{ type: "tool_call", id: call.id, name, arguments: call.arguments }]),
				];
				return { ...response, output, call };
			}
			case "ACPToolCallEvent": {
				const name = textOf(memberOf(event, "tool_kind")) || textOf(memberOf(event, "title"));
				const callId = textOf(memberOf(event, "tool_call_id")) || id;
				const input = this.#contentOf(memberOf(event, "raw_input"));
				const call = { id: callId, actionId: undefined, name, arguments: input };
				const status = memberOf(event, "status");
				if (status !== "completed" && status !== "failed") return { call };
				const isError = status === "failed" || memberOf(event, "is_error") === true;
				const content = this.#contentOf(memberOf(event, "content") ?? memberOf(event, "raw_output"));
				const error = isError ? OTHER : undefined;
				return { call, result: { callId, actionId: "", tool: name, content, error } };
			}
			case "ObservationEvent":
			case "UserRejectObservation":
			case "AgentErrorEvent": {
				const observation = memberOf(event, "observation");
				const isError = kind !== "ObservationEvent" || memberOf(observation, "is_error") === true;
				const told = memberOf(event, "error") ?? memberOf(event, "rejection_reason");
				const texts = textsOf(memberOf(observation, "content") ?? observation, memberOf(event, "extended_content"));
				return {
					result: {
						...{ callId: textOf(memberOf(event, "tool_call_id")), actionId: textOf(memberOf(event, "action_id")) },
						tool: textOf(memberOf(event, "tool_name")),
						content: this.#contentOf(kind === "ObservationEvent" ? texts.join("\n") : told),
						error: isError ? (kind === "ObservationEvent" ? OTHER : kind) : undefined,
					},
				};
			}
			case "ConversationErrorEvent": {
				const detail = this.#contentOf(memberOf(event, "detail")) ?? "";
				return { error: { code: textOf(memberOf(event, "code")) || OTHER, detail } };
			}
			default:
				return response;
		}
	}

	#reasoning(text: ExactJson | undefined): ExactJsonObject[] {
		const content = textOf(text);
		return this.#keepsContent && content !== "" ? [{ type: "reasoning", content: cut(content) }] : [];
	}

	#contentOf(value: ExactJson | undefined): string | undefined {
		if (!this.#keepsContent || value == null) return undefined;
		return cut(typeof value === "string" ? value : textsOf(value).join("\n"));
	}
}

/** `error.type` of an error whose class is not known (OpenTelemetry semantic conventions). */
const OTHER = "_OTHER";

function byName(a: string, b: string): number {
	return a < b ? -1 : Number(a > b);
}

function numberOf(value: ExactJson | undefined): number {
	const number = typeof value === "bigint" || typeof value === "number" ? Number(value) : 0;
	return Number.isFinite(number) ? number : 0;
}

function microseconds(seconds: ExactJson | undefined): bigint {
	return BigInt(Math.round(numberOf(seconds) * 1e6));
}

/** Maximum number of characters of a text in a span. */
const MAX_TEXT = 32_768;

/** Returns a text, or its beginning if it is too long. */
export function cut(text: string): string {
	return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT).toWellFormed()}…`;
}

/** Returns the texts of lists of content. What is no text of content is given as JSON, and what is no text at all by its type. */
export function textsOf(...contents: readonly (ExactJson | undefined)[]): string[] {
	return contents.flatMap((content) => {
		if (content == null) return [];
		if (!Array.isArray(content)) return [typeof content === "string" ? content : stringifyExactJson(content)];
		return content.map((part) => {
			const text = memberOf(part, "text");
			return cut(typeof text === "string" ? text : `[${textOf(memberOf(part, "type")) || "content"}]`);
		});
	});
}
