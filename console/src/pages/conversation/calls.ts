import type { Json } from "./steps.ts";

/** The calls of models that a record lists. */

/** A call of a model. What the record does not tell is undefined. */
export interface Call {
	readonly usageId: string;
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
 * Returns the calls that a record lists, in order of time. A cost has its own time. Tokens are those of the cost at the
 * same place, if there are as many of both; else they have the time of the event with their response, or of the entry
 * before.
 *
 * @param timeOf returns the time of the event that a model's response led to, in seconds; undefined if there is none
 */
export function callsOf(record: Json | undefined, timeOf: (responseId: string) => number | undefined): readonly Call[] {
	const usages = memberOf(memberOf(record, "stats"), "usage_to_metrics");
	return Object.entries(isObject(usages) ? usages : {})
		.flatMap(([usageId, metrics]) => {
			const costs = listOf(memberOf(metrics, "costs"));
			const tokens = listOf(memberOf(metrics, "token_usages"));
			const paired = costs.length === tokens.length;
			const ofCosts = costs.map((cost, index) => callOf(usageId, cost, paired ? tokens[index] : undefined, 0));
			let before = ofCosts[0]?.time ?? 0;
			const ofTokens = (paired ? [] : tokens).map((one) => {
				const id = memberOf(one, "response_id");
				before = (typeof id === "string" ? timeOf(id) : undefined) ?? before;
				return callOf(usageId, undefined, one, before);
			});
			return [...ofCosts, ...ofTokens];
		})
		.filter(({ time }) => time > 0)
		.sort((a, b) => a.time - b.time);
}

function callOf(usageId: string, cost: unknown, tokens: unknown, time: number): Call {
	const model = memberOf(cost, "model") ?? memberOf(tokens, "model");
	const prompt = numberOf(tokens, "prompt_tokens");
	return {
		usageId,
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
