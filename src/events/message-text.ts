import { type ExactJson, memberOf } from "../record/json/json-value.ts";

/**
 * Returns the text that the user or the agent says in an event: that of a message, or of the agent's finish action.
 *
 * @returns undefined when the event says nothing
 */
export function messageText(event: ExactJson): string | undefined {
	switch (memberOf(event, "kind")) {
		case "MessageEvent": {
			const content = memberOf(memberOf(event, "llm_message"), "content");
			const texts = Array.isArray(content) ? content.map(textOf).filter((text) => text !== undefined) : [];
			return texts.length === 0 ? undefined : texts.join("\n");
		}
		case "ActionEvent": {
			const action = memberOf(event, "action");
			const message = memberOf(action, "kind") === "FinishAction" ? memberOf(action, "message") : undefined;
			return typeof message === "string" ? message : undefined;
		}
		default:
			return undefined;
	}
}

function textOf(content: ExactJson): string | undefined {
	const text = memberOf(content, "type") === "text" ? memberOf(content, "text") : undefined;
	return typeof text === "string" ? text : undefined;
}

/** Returns the first `count` characters (Unicode code points) of a text. */
export function beginning(text: string, count: number): string {
	// A code point consists of one or two UTF-16 code units.
	return [...text.slice(0, 2 * count)].slice(0, count).join("");
}
