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
	readonly prompt?: { readonly parts: readonly ExactJsonObject[] };
	readonly systemPrompt?: string;
	/** Id of the response of a model that the event is part of. */
	readonly responseId?: string;
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
}

interface Listed {
	readonly list: string;
	readonly index: number;
	readonly usage: Omit<Usage, "n">;
}

/** Collects what traces need of a conversation. Events are added in the order of the log. */
export class Facts {
	readonly #facts: Fact[] = [];
	readonly #usages = new Map<string, Listed>();
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

	/** Adds lists of calls. An entry that is known stays as it is; so those of the record are added first. */
	addStats(stats: ExactJson | undefined): void {
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
				this.#usages.getOrInsertComputed(JSON.stringify([list, index]), () => ({
					...{ list, index },
					usage: {
						...{ responseId, model: textOf(memberOf(entry, "model")), latency: latencies.get(responseId) },
						...{ prompt: count("prompt_tokens"), completion: count("completion_tokens") },
						...{ cacheRead: count("cache_read_tokens"), cacheWrite: count("cache_write_tokens") },
						reasoning: count("reasoning_tokens"),
					},
				}));
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
		const more = this.#factOf(event, id);
		const follows = ["parent_id", "action_id"].flatMap((name) => textOf(memberOf(event, name)) || []);
		if (isGap || Object.keys(more).length > 0) this.#facts.push({ at, receivedAt, id, follows, isGap, ...more });
	}

	#factOf(event: ExactJson, id: string): Partial<Fact> {
		const of = (name: string) => memberOf(event, name);
		const text = (name: string, otherwise?: string) => textOf(of(name), otherwise);
		const kind = text("kind");
		const responseId = text("llm_response_id");
		const response = responseId === "" ? {} : { responseId };
		switch (kind) {
			case "ConversationStateUpdateEvent": {
				const key = of("key");
				if (key === "full_state") this.addStats(memberOf(of("value"), "stats"));
				return key === "execution_status" ? { status: text("value") } : {};
			}
			case "SystemPromptEvent":
				return this.#keepsContent ? { systemPrompt: cut(textOf(memberOf(of("system_prompt"), "text"))) } : {};
			case "MessageEvent": {
				const message = of("llm_message");
				const parts = this.#textParts(memberOf(message, "content"), of("extended_content"));
				if (memberOf(message, "role") === "user") return { prompt: { parts } };
				const reasoning = this.#reasoning(memberOf(message, "reasoning_content"));
				return responseId === "" ? {} : { ...response, output: [...reasoning, ...parts] };
			}
			case "ActionEvent": {
				const asked = of("tool_call");
				const name = textOf(memberOf(asked, "name"), text("tool_name"));
				const callId = text("tool_call_id", id);
				const given = this.#contentOf(memberOf(asked, "arguments") ?? of("action"));
				const asking = given === undefined ? [] : [{ type: "tool_call", id: callId, name, arguments: given }];
				const output = [...this.#reasoning(of("reasoning_content")), ...this.#textParts(of("thought")), ...asking];
				return { ...response, output, call: { id: callId, actionId: id, name, arguments: given } };
			}
			case "ACPToolCallEvent": {
				const name = text("tool_kind", text("title"));
				const callId = text("tool_call_id", id);
				const call = { id: callId, actionId: undefined, name, arguments: this.#contentOf(of("raw_input")) };
				const status = of("status");
				if (status !== "completed" && status !== "failed") return { call };
				const error = status === "failed" || of("is_error") === true ? OTHER : undefined;
				const content = this.#contentOf(of("content") ?? of("raw_output"));
				return { call, result: { callId, actionId: "", tool: name, content, error } };
			}
			case "ObservationEvent": {
				const observation = of("observation");
				const texts = textsOf(memberOf(observation, "content") ?? observation, of("extended_content"));
				const error = memberOf(observation, "is_error") === true ? OTHER : undefined;
				return { result: { ...resultOf(event), content: this.#contentOf(texts.join("\n")), error } };
			}
			case "UserRejectObservation":
			case "AgentErrorEvent": {
				const content = this.#contentOf(of("error") ?? of("rejection_reason"));
				return { result: { ...resultOf(event), content, error: kind } };
			}
			case "ConversationErrorEvent":
				return { error: { code: text("code", OTHER), detail: this.#contentOf(of("detail")) ?? "" } };
			default:
				return response;
		}
	}

	#textParts(...contents: readonly (ExactJson | undefined)[]): ExactJsonObject[] {
		return this.#keepsContent ? textsOf(...contents).map((content) => ({ type: "text", content })) : [];
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

function resultOf(event: ExactJson): Pick<ToolResult, "callId" | "actionId" | "tool"> {
	const text = (name: string) => textOf(memberOf(event, name));
	return { callId: text("tool_call_id"), actionId: text("action_id"), tool: text("tool_name") };
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
