import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { ConversationSummary, TokenTotals } from "../../gen/conversations/v1/summary_pb.js";
import { toMicroseconds } from "../record/json/scalars.ts";

/**
 * A condition on the summary of a conversation's record. The lists of all engines and {@link summaryMeets} agree about
 * it.
 */
export type Condition =
	| {
			readonly kind: "equal";
			readonly field:
				| "executionStatus"
				| "agentKind"
				| "model"
				| "parentConversationId"
				| "forkedFromConversationId"
				| "sender"
				| "owner";
			readonly value: string | number;
	  }
	/** The status is one of the values. */
	| { readonly kind: "one_of"; readonly field: "executionStatus"; readonly values: readonly number[] }
	/** The conversation has one of these ids. */
	| { readonly kind: "ids"; readonly ids: readonly string[] }
	/** There is a tag with this key, and with this value unless `value` is undefined. */
	| { readonly kind: "tag"; readonly key: string; readonly value: string | undefined }
	/** The time is `from` or later, and before `to`. Undefined bounds do not apply. Microseconds of Unix time. */
	| {
			readonly kind: "time";
			readonly field: "createdAt" | "updatedAt" | "activityAt";
			readonly from?: bigint;
			readonly to?: bigint;
	  }
	/** The cost was reported, is `from` or more, and below `to`. Undefined bounds do not apply. */
	| { readonly kind: "cost"; readonly from?: number; readonly to?: number }
	/** The cost, or the tokens, were not reported. */
	| { readonly kind: "not_reported"; readonly of: "cost" | "tokens" }
	/** The summary has an error; if `value` is false, it has none. */
	| { readonly kind: "error"; readonly value: boolean }
	/**
	 * The conversation has gaps, the oldest noticed before `before` (microseconds of Unix time) unless that is undefined; if
	 * `value` is false, it has none.
	 */
	| { readonly kind: "gaps"; readonly value: true; readonly before?: bigint | undefined }
	| { readonly kind: "gaps"; readonly value: false }
	/** No score of this name stands for the conversation, or with `isOrdered` none by which a list is ordered. */
	| { readonly kind: "score"; readonly name: string; readonly is: "none"; readonly isOrdered?: true }
	/** The score of this name that stands for the conversation is shown as one of these texts: see `score_values`. */
	| { readonly kind: "score"; readonly name: string; readonly is: "="; readonly value: readonly string[] }
	/** It is a number, or the share of true, that compares so. */
	| { readonly kind: "score"; readonly name: string; readonly is: ">=" | ">" | "<=" | "<"; readonly value: number }
	/** The title contains a text. The case of ASCII letters is ignored. */
	| { readonly kind: "title"; readonly contains: string };

/** Returns whether a summary meets all conditions. */
export function summaryMeets(conditions: readonly Condition[], summary: ConversationSummary): boolean {
	return conditions.every((condition) => meetsOne(condition, summary));
}

function meetsOne(condition: Condition, summary: ConversationSummary): boolean {
	switch (condition.kind) {
		case "equal":
			return summary[condition.field] === condition.value;
		case "tag": {
			const { key, value } = condition;
			return Object.hasOwn(summary.tags, key) && (value === undefined || summary.tags[key] === value);
		}
		case "ids":
			return condition.ids.includes(summary.id);
		case "one_of":
			return condition.values.includes(summary[condition.field]);
		case "cost": {
			const { from = 0, to = Number.POSITIVE_INFINITY } = condition;
			const { accumulatedCost: cost } = summary;
			return cost !== undefined && cost >= from && cost < to;
		}
		case "not_reported":
			return (condition.of === "cost" ? summary.accumulatedCost : summary.tokens) === undefined;
		case "error":
			return (summary.lastError !== undefined) === condition.value;
		case "gaps":
			if (!condition.value || summary.gaps === undefined) return condition.value === (summary.gaps !== undefined);
			return (
				condition.before === undefined || (microsecondsOf(summary.gaps.since) ?? condition.before) < condition.before
			);
		case "time": {
			const { field, from, to } = condition;
			const time = microsecondsOf(
				field === "activityAt" ? (summary.lastActivityAt ?? summary.updatedAt) : summary[field],
			);
			return time !== undefined && (from === undefined || time >= from) && (to === undefined || time < to);
		}
		case "score":
			throw new TypeError("a summary has no scores");
		case "title":
			return summary.title !== undefined && asciiLower(summary.title).includes(asciiLower(condition.contains));
	}
}

/** The values whose index tells quickly how many conversations have them. */
const COUNTED: ReadonlySet<string> = new Set(["executionStatus", "agentKind", "model", "sender", "owner"]);

/** Returns whether it costs little to count the conversations that meet all conditions, so that lists tell their number. */
export function isCountedFast(conditions: readonly Condition[]): boolean {
	return conditions.every((condition) => "field" in condition && COUNTED.has(condition.field));
}

/** The orders of a list. The largest value comes first; of equal values, the one with the newest current update. */
export type ListOrder = "updated" | "activity" | "created" | "cost" | "tokens" | "score";

/** What stands for a cost or tokens that were not reported: less than all others, so that they come last in each order. */
export const NOT_REPORTED = -1;

/** Returns the number by which lists order conversations by tokens. */
export function orderedTokens(tokens: TokenTotals | undefined): bigint {
	if (tokens === undefined) return BigInt(NOT_REPORTED);
	const sum = tokens.promptTokens + tokens.completionTokens;
	return sum < 2n ** 63n ? sum : 2n ** 63n - 1n;
}

/** Converts a timestamp that may be missing to microseconds since the Unix epoch. */
export function microsecondsOf(time: Timestamp | undefined): bigint | undefined {
	return time && toMicroseconds(time);
}

/** Converts the ASCII letters of a text to lower case. */
export function asciiLower(text: string): string {
	return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** A condition on an event. The lists of all engines and {@link eventMeets} agree about it. */
export type EventCondition =
	/** The kind or the source is one of the values. */
	| { readonly kind: "one_of"; readonly field: "kind" | "source"; readonly values: readonly string[] }
	/** The kind is none of the values. */
	| { readonly kind: "none_of"; readonly field: "kind"; readonly values: readonly string[] }
	/** The event has this id, of at most {@link MAX_ID_LENGTH} characters (Unicode code points). */
	| { readonly kind: "id"; readonly value: string }
	/** It happened at `from` or later and before `to`. Undefined bounds do not apply. Microseconds of Unix time. */
	| { readonly kind: "happened"; readonly from?: bigint; readonly to?: bigint };

/** Maximum length of an id that a condition has. PostgreSQL's engine stores a longer id cut. */
export const MAX_ID_LENGTH = 256;

/** Base-2 logarithm of the number of sequences in a block of `event_times`, which has the times of its events. */
export const BLOCK_BITS = 10;

/** The range of all times, and of all sequences: integers of 64 bits. */
export const EVER = { from: -(2n ** 63n), to: 2n ** 63n - 1n };

/** Returns the range of time that all conditions select together; undefined when none is on the time. */
export function timeRangeOf(conditions: readonly EventCondition[]): typeof EVER | undefined {
	const ranges = conditions.filter((condition) => condition.kind === "happened");
	if (ranges.length === 0) return undefined;
	let { from, to } = EVER;
	for (const range of ranges) {
		if (range.from !== undefined && range.from > from) from = range.from;
		if (range.to !== undefined && range.to < to) to = range.to;
	}
	return { from, to };
}

/** What conditions are on. The JSON text of the event has its id. */
interface ComparedEvent {
	readonly kind: string;
	readonly source: string;
	readonly happenedAt: bigint;
	readonly event: { readonly text: Uint8Array } | { readonly unreadable: string };
}

/** Returns whether an event meets all conditions. */
export function eventMeets(conditions: readonly EventCondition[], event: ComparedEvent): boolean {
	return conditions.every((condition) => eventMeetsOne(condition, event));
}

function eventMeetsOne(condition: EventCondition, event: ComparedEvent): boolean {
	switch (condition.kind) {
		case "one_of":
			return condition.values.includes(event[condition.field]);
		case "none_of":
			return !condition.values.includes(event[condition.field]);
		case "id":
			return idIn(event) === condition.value;
		case "happened": {
			const { from, to } = condition;
			return (from === undefined || event.happenedAt >= from) && (to === undefined || event.happenedAt < to);
		}
	}
}

/** Returns the id in the text of an event; undefined when it cannot be read. */
function idIn({ event }: ComparedEvent): string | undefined {
	if ("unreadable" in event) return undefined;
	const json: unknown = JSON.parse(new TextDecoder().decode(event.text));
	const id = typeof json === "object" && json !== null && "id" in json ? json.id : undefined;
	return typeof id === "string" ? id : undefined;
}
