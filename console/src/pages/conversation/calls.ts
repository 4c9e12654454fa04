import type { Json } from "./parts.ts";

/** The calls of models that a record lists. */

/** A call of a model. What the record does not tell is undefined. */
export interface Call {
	readonly usageId: string;
	/** Id of the model's response; empty if it is not known. */
	readonly responseId: string;
	readonly model: string;
	/** Seconds of Unix time. */
	readonly time: number;
	readonly cost: number | undefined;
	/** Prompt and completion tokens. */
	readonly tokens: number | undefined;
	/** Tokens of the context, and how many the model takes. */
	readonly context: number | undefined;
	readonly contextWindow: number | undefined;
}

/**
 * Returns the calls that a record lists, in order of time. A call has a latency, a cost unless that is zero, and tokens
 * unless there are none, in lists of their own. Latencies and tokens name the model's response. A cost does not: it is
 * that of the latency at the same place, or of the tokens, if there are as many of both; else nobody knows whose it is.
 *
 * @param timeOf returns the time of the event that a model's response led to, in seconds; undefined if there is none
 */
export function callsOf(record: Json | undefined, timeOf: (responseId: string) => number | undefined): readonly Call[] {
	const usages = memberOf(memberOf(record, "stats"), "usage_to_metrics");
	return Object.entries(isObject(usages) ? usages : {})
		.flatMap(([usageId, metrics]) => {
			const costs = listOf(memberOf(metrics, "costs"));
			const tokens = listOf(memberOf(metrics, "token_usages"));
			const latencies = listOf(memberOf(metrics, "response_latencies"));
			const named = [latencies, tokens].find(({ length }) => length === costs.length) ?? [];
			const left = new Map(tokens.map((one) => [responseOf(one), one]));
			const ofCosts = costs.map((cost, index) => {
				const responseId = responseOf(named[index]);
				const own = responseId === "" ? undefined : left.get(responseId);
				if (own !== undefined) left.delete(responseId);
				return callOf(usageId, responseId, cost, own, 0);
			});
			let before = ofCosts[0]?.time ?? 0;
			const ofTokens = [...left].map(([responseId, one]) => {
				before = timeOf(responseId) ?? before;
				return callOf(usageId, responseId, undefined, one, before);
			});
			return [...ofCosts, ...ofTokens];
		})
		.filter(({ time }) => time > 0)
		.sort((a, b) => a.time - b.time);
}

function responseOf(value: unknown): string {
	const id = memberOf(value, "response_id");
	return typeof id === "string" ? id : "";
}

function callOf(usageId: string, responseId: string, cost: unknown, tokens: unknown, time: number): Call {
	const model = memberOf(cost, "model") ?? memberOf(tokens, "model");
	const prompt = numberOf(tokens, "prompt_tokens");
	return {
		usageId,
		responseId,
		model: typeof model === "string" ? model : "",
		time: numberOf(cost, "timestamp") ?? time,
		cost: numberOf(cost, "cost"),
		tokens: prompt === undefined ? undefined : prompt + (numberOf(tokens, "completion_tokens") ?? 0),
		context: numberOf(tokens, "per_turn_token"),
		contextWindow: numberOf(tokens, "context_window"),
	};
}

function listOf(value: unknown): readonly unknown[] {
	return Array.isArray(value) ? value : [];
}

function numberOf(value: unknown, name: string): number | undefined {
	const member = memberOf(value, name);
	return typeof member === "number" && Number.isFinite(member) ? member : undefined;
}

function memberOf(value: unknown, name: string): unknown {
	return isObject(value) ? value[name] : undefined;
}

function isObject(value: unknown): value is Json {
	return typeof value === "object" && value !== null;
}
