import { messageText } from "../events/event-parts.ts";
import { type ExactJson, isJsonObject, memberOf } from "../record/json/json-value.ts";
import { isScore, MAX_COMMENT } from "../store/scores.ts";
import type { CriticResult, EventContent } from "../store/text-index.ts";
import { REDACTED, replaceUserinfo } from "../userinfo.ts";
import type { SearchText, TextField } from "./match.ts";

/** Kinds of events that have no text to find. They are numerous, or large. */
export const KINDS_WITHOUT_TEXT = ["ConversationStateUpdateEvent", "StreamingDeltaEvent", "SystemPromptEvent"];
/** Maximum length of the texts of an event that are found, in UTF-16 code units. */
export const MAX_TEXT = 100_000;

/** Members of a tool call that have a command, and those that have the name of a file. */
const COMMANDS = ["command", "cmd"];
const FILES = ["path", "file_path", "filePath", "filename", "file_name", "file"];
/** Members with the arguments of a tool call: of the agent's own tools, of tools by MCP, and of agents by ACP. */
const ARGUMENTS = [["action"], ["action", "data"], ["raw_input"]];

/**
 * Returns the texts of an event with hidden secrets that are found: what a user or the agent says, the command and the file
 * name of a tool call, and the text of an error.
 */
export function eventTexts(event: ExactJson): SearchText[] {
	const kind = memberOf(event, "kind");
	const texts: SearchText[] = [];
	let left = MAX_TEXT;
	const add = (field: TextField, ...values: readonly (string | undefined)[]) => {
		for (const value of values) {
			if (value === undefined || value === "" || left <= 0) continue;
			// A ciphertext in a URL is hidden, too.
			const text = replaceUserinfo(value.slice(0, left), () => REDACTED);
			texts.push({ field, text });
			left -= text.length;
		}
	};
	add(kind === "MessageEvent" ? "message" : "finish_message", messageText(event));
	for (const path of ARGUMENTS) {
		const call = path.reduce<ExactJson | undefined>(memberOf, event);
		if (call === undefined) continue;
		const files = FILES.map((name) => textOf(memberOf(call, name)));
		add("file_name", ...files);
		// The command of a file editor only names what is done to the file.
		if (files.every((file) => file === undefined))
			add("command", ...COMMANDS.map((name) => textOf(memberOf(call, name))));
	}
	// The title of an agent's tool call by ACP shows its command.
	if (kind === "ACPToolCallEvent") add("command", textOf(memberOf(event, "title")));
	if (typeof kind === "string" && kind.endsWith("ErrorEvent"))
		add("error", ...["code", "detail", "error"].map((name) => textOf(memberOf(event, name))));
	const observation = memberOf(event, "observation");
	if (memberOf(observation, "is_error") === true) add("error", observedText(memberOf(observation, "content")));
	if (memberOf(event, "is_error") === true) add("error", textOf(memberOf(event, "raw_output")));
	return texts;
}

/** Returns what is indexed of an event with hidden secrets. */
export function contentOf(event: ExactJson): EventContent {
	if (KINDS_WITHOUT_TEXT.includes(textOf(memberOf(event, "kind")) ?? "")) return { texts: [] };
	return { texts: eventTexts(event).map(({ text }) => text), criticResult: criticResultOf(event) };
}

/** Returns what a critic says in an event with hidden secrets; undefined for nothing, and for what is no number of a score. */
function criticResultOf(event: ExactJson): CriticResult | undefined {
	const result = memberOf(event, "critic_result");
	const value = memberOf(result, "score");
	if (!isScore(value)) return undefined;
	const message = replaceUserinfo(textOf(memberOf(result, "message")) ?? "", () => REDACTED);
	// A copy in well-formed Unicode: a slice would keep the whole message in memory.
	return { value, comment: Buffer.from(message.slice(0, MAX_COMMENT)).toString() };
}

/** Returns a text, or the texts of a list separated by spaces. */
function textOf(value: ExactJson | undefined): string | undefined {
	if (typeof value === "string") return value;
	const texts = Array.isArray(value) ? value.filter((item) => typeof item === "string") : [];
	return texts.length === 0 ? undefined : texts.join(" ");
}

/** Returns the texts of the content of an observation. */
function observedText(content: ExactJson | undefined): string | undefined {
	if (!Array.isArray(content)) return textOf(content);
	return textOf(content.map((item) => (isJsonObject(item) ? (memberOf(item, "text") ?? "") : item)));
}
