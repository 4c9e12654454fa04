import { isJsonMembers, type Json, type JsonMembers } from "./json.ts";

/**
 * The text that a user or the agent says in an event: that of a message, or the message with which the agent finishes.
 *
 * @param members the event's members beyond its envelope
 * @returns undefined when the event says nothing
 */
export function messageText(kind: string, members: JsonMembers): string | undefined {
	if (kind === "MessageEvent") {
		const { content } = isJsonMembers(members.llm_message) ? members.llm_message : {};
		const texts = Array.isArray(content) ? content.map(textOf).filter((text) => text !== undefined) : [];
		return texts.length === 0 ? undefined : texts.join("\n");
	}
	if (kind === "ActionEvent" && isJsonMembers(members.action) && members.action.kind === "FinishAction") {
		const { message } = members.action;
		return typeof message === "string" ? message : undefined;
	}
	return undefined;
}

function textOf(content: Json): string | undefined {
	return isJsonMembers(content) && content.type === "text" && typeof content.text === "string"
		? content.text
		: undefined;
}

/** The first `count` characters (Unicode code points) of a text. */
export function beginning(text: string, count: number): string {
	if (text.length <= count) return text;
	let end = 0;
	for (const character of text) {
		if (count-- === 0) break;
		end += character.length;
	}
	return text.slice(0, end);
}
