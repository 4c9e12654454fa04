import { type ExactJson, memberOf } from "../record/json/json-value.ts";
import type { NewEvent } from "../store/entries.ts";
import { REDACTED, replaceUserinfo } from "../userinfo.ts";
import { beginning } from "./message-text.ts";

/** Kind of the events by which the agent server reports that a run failed. */
export const ERROR_EVENT = "ConversationErrorEvent";
/** Maximum number of characters that are stored of the text of an error. */
const MAX_TEXT = 500;
/** Maximum number of characters that are stored of the code and of the kind of an error. */
const MAX_NAME = 200;

/**
 * Returns the error that an event reports.
 *
 * @param event its secrets are hidden
 * @returns undefined when the event is no ConversationErrorEvent
 */
export function reportedError(event: ExactJson): NewEvent["error"] {
	if (memberOf(event, "kind") !== ERROR_EVENT) return undefined;
	const classification = memberOf(event, "classification");
	const retryable = memberOf(classification, "retryable");
	return {
		code: textOf(memberOf(event, "code"), MAX_NAME),
		kind: textOf(memberOf(classification, "kind"), MAX_NAME),
		retryable: typeof retryable === "boolean" ? retryable : undefined,
		text: textOf(memberOf(event, "detail"), MAX_TEXT),
	};
}

function textOf(member: ExactJson | undefined, count: number): string {
	return typeof member === "string"
		? beginning(
				replaceUserinfo(member, () => REDACTED),
				count,
			)
		: "";
}
