import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import { toMicroseconds } from "../record/json/scalars.ts";

/** A condition on the summary of a conversation's record. Every engine's lists and {@link meets} decide it alike. */
export type Condition =
	| {
			readonly kind: "equal";
			readonly field: "executionStatus" | "agentKind" | "model" | "parentConversationId";
			readonly value: string | number;
	  }
	/** There is a tag with this key; with this value, unless that is undefined. */
	| { readonly kind: "tag"; readonly key: string; readonly value: string | undefined }
	/** The time is set, `from` or later, and before `to`, where these are set; microseconds since the Unix epoch. */
	| {
			readonly kind: "time";
			readonly field: "createdAt" | "updatedAt";
			readonly from?: bigint;
			readonly to?: bigint;
	  }
	/** The title contains a text, without regard to the case of ASCII letters. */
	| { readonly kind: "title"; readonly contains: string };

/** Whether a summary meets all conditions. */
export function meets(conditions: readonly Condition[], summary: ConversationSummary): boolean {
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

/** Microseconds since the Unix epoch of a time that may be missing. */
export function microsecondsOf(time: Timestamp | undefined): bigint | undefined {
	return time && toMicroseconds(time);
}

/** A text with its ASCII letters in lower case. */
export function asciiLower(text: string): string {
	return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
