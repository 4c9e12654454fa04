import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import { toMicroseconds } from "../record/json/scalars.ts";

/**
 * A condition on the summary of a conversation's record. The lists of all engines and {@link summaryMeets} agree about
 * it.
 */
export type Condition =
	| {
			readonly kind: "equal";
			readonly field: "executionStatus" | "agentKind" | "model" | "parentConversationId" | "sender" | "owner";
			readonly value: string | number;
	  }
	/** There is a tag with this key, and with this value unless `value` is undefined. */
	| { readonly kind: "tag"; readonly key: string; readonly value: string | undefined }
	/** The time is `from` or later, and before `to`. Undefined bounds do not apply. Microseconds of Unix time. */
	| {
			readonly kind: "time";
			readonly field: "createdAt" | "updatedAt";
			readonly from?: bigint;
			readonly to?: bigint;
	  }
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
		case "time": {
			const time = microsecondsOf(summary[condition.field]);
			const { from, to } = condition;
			return time !== undefined && (from === undefined || time >= from) && (to === undefined || time < to);
		}
		case "title":
			return summary.title !== undefined && asciiLower(summary.title).includes(asciiLower(condition.contains));
	}
}

/** Converts a timestamp that may be missing to microseconds since the Unix epoch. */
export function microsecondsOf(time: Timestamp | undefined): bigint | undefined {
	return time && toMicroseconds(time);
}

/** Converts the ASCII letters of a text to lower case. */
export function asciiLower(text: string): string {
	return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
