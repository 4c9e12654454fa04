import { stringifyExactJson } from "../record/json/exact-json.ts";
import { type ExactJson, memberOf } from "../record/json/json-value.ts";

/** Maximum number of characters of a text in a span. */
const MAX_TEXT = 32_768;

/** Returns a text, or its beginning if it is too long. */
export function cut(text: string): string {
	return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT).toWellFormed()}…`;
}

/** Returns a text; empty for any other value. */
export function textOf(value: ExactJson | undefined): string {
	return typeof value === "string" ? value : "";
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
