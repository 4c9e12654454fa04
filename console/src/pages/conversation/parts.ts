import { terminalText } from "./terminal.ts";

/**
 * What a step shows, as data: the page, the pages for print and export, and the search are all made of the same parts.
 * All texts are those of people, models and programs, and never HTML.
 */

/** A JSON object of any form. */
export type Json = Readonly<Record<string, unknown>>;

export type Part =
	/** `cut`: number of lines that are shown at first, if it is not the usual one. */
	| { readonly kind: "markdown" | "text"; readonly text: string; readonly cut?: number }
	/** What was run in a terminal. */
	| { readonly kind: "command"; readonly text: string }
	/** What a program wrote to a terminal, with the escape sequences of colours. */
	| { readonly kind: "terminal"; readonly text: string }
	/** Any other text that is shown as it is. `label`: the name of the argument or member whose value it is. */
	| { readonly kind: "code"; readonly label: string; readonly text: string }
	| DiffPart
	/** `address`: a data: URL of an image. */
	| { readonly kind: "picture"; readonly name: string; readonly address: string }
	/** Names and short values. */
	| { readonly kind: "facts"; readonly facts: readonly (readonly [name: string, value: string])[] }
	| { readonly kind: "tasks"; readonly tasks: readonly TaskItem[] }
	/** Parts that are shown when a person asks for them. */
	| { readonly kind: "fold"; readonly title: string; readonly parts: readonly Part[] };

/** A change of a file. */
export interface DiffPart {
	readonly kind: "diff";
	readonly path: string;
	/** The text before; empty if there was no file. */
	readonly before: string;
	readonly after: string;
	/** Whether the texts are those of the whole file, so that their lines have numbers. */
	readonly isWhole: boolean;
}

/** An item of a list of tasks. */
export interface TaskItem {
	readonly status: string;
	readonly title: string;
	readonly notes: string;
}

/** Characters and lines up to which a value stands beside its name. */
const SHORT = 160;
/** Values that are nested deeper, and more values than these, are shown as JSON. */
const MAX_DEPTH = 16;
const MAX_VALUES = 2_000;
/** Number of values beyond which they are folded. */
const MANY = 24;

/** The members of a JSON object. It knows which ones were read, so that all others can be shown, too. */
export class Members {
	readonly #members: Json;
	readonly #left: Set<string>;

	/** @param without names of members that are not shown */
	constructor(members: Json | undefined, ...without: readonly string[]) {
		this.#members = members ?? {};
		this.#left = new Set(Object.keys(this.#members));
		for (const name of without) this.#left.delete(name);
	}

	/** Returns a member. Who reads it shows it. */
	take(name: string): unknown {
		this.#left.delete(name);
		return this.#members[name];
	}

	/** Returns a member that is a text, else an empty text; another value stays among the rest. */
	text(name: string): string {
		const value = this.#members[name];
		if (typeof value !== "string") return "";
		this.#left.delete(name);
		return value;
	}

	/** Whether a member is true. One that is false is not shown. */
	flag(name: string): boolean {
		const value = this.#members[name];
		if (typeof value === "boolean") this.#left.delete(name);
		return value === true;
	}

	/** Returns the members that were not read, as parts. Those without a value are left out. */
	rest(): readonly Part[] {
		return valueParts("", Object.fromEntries([...this.#left].map((name) => [name, this.#members[name]])));
	}

	/** Returns the members that were not read, behind a fold if there are any. */
	foldedRest(title: string): readonly Part[] {
		return folded(title, this.rest());
	}
}

/** Returns parts behind a fold; none if there are none. */
export function folded(title: string, parts: readonly Part[]): readonly Part[] {
	return parts.length === 0 ? [] : [{ kind: "fold", title, parts }];
}

/** Returns a part for a text; none if it is empty. */
export function textPart(kind: "markdown" | "text" | "command" | "terminal", text: string): readonly Part[] {
	return text === "" ? [] : [{ kind, text }];
}

export function facts(...all: readonly (readonly [name: string, value: string | undefined])[]): readonly Part[] {
	const given = all.flatMap(([name, value]) => (value === undefined || value === "" ? [] : [[name, value] as const]));
	return given.length === 0 ? [] : [{ kind: "facts", facts: given }];
}

/**
 * Returns a JSON value of any form as parts that show each of its texts as it is: short ones beside their names, long
 * ones below them, and images as pictures.
 *
 * @param name its name; empty for the members of an object alone
 */
export function valueParts(name: string, value: unknown): readonly Part[] {
	const parts: Part[] = [];
	let count = 0;
	const add = (label: string, text: string): void => {
		const last = parts.at(-1);
		const fact = [label, text] as const;
		if (text.length > SHORT || text.includes("\n")) parts.push({ kind: "code", label, text });
		else if (last?.kind === "facts") parts[parts.length - 1] = { ...last, facts: [...last.facts, fact] };
		else parts.push({ kind: "facts", facts: [fact] });
	};
	const walk = (label: string, one: unknown, depth: number): void => {
		if (one === undefined || one === null || one === "") return;
		count += 1;
		if (typeof one === "string") {
			const address = pictureAddress(one);
			if (address === undefined) add(label, one);
			else parts.push({ kind: "picture", name: label, address });
		} else if (typeof one !== "object") add(label, String(one));
		else if (depth > MAX_DEPTH || count > MAX_VALUES) add(label, JSON.stringify(one, null, 2));
		else if (Array.isArray(one)) {
			if (one.every((item) => typeof item !== "object" && String(item).length < 60)) add(label, one.join(", "));
			else for (const [index, item] of one.entries()) walk(`${label} ${index + 1}`.trim(), item, depth + 1);
		} else
			for (const [key, member] of Object.entries(one)) walk(label === "" ? key : `${label}.${key}`, member, depth + 1);
	};
	walk(name, value, 0);
	return count > MANY + 1 ? folded(name === "" ? "all values" : name, parts) : parts;
}

/** Returns the parts of content, such as that of a message or a result: texts and images. */
export function contentParts(content: unknown, kind: "markdown" | "text" | "terminal"): readonly Part[] {
	if (typeof content === "string") return textPart(kind, content);
	if (!Array.isArray(content)) return valueParts("", content);
	// Texts that follow each other are one.
	const parts: Part[] = [];
	for (const item of content) {
		const last = parts.at(-1);
		const text = typeof item === "string" ? item : contentText(item);
		if (text === undefined) parts.push(...otherContent(item));
		else if (last !== undefined && last.kind === kind)
			parts[parts.length - 1] = { kind, text: `${last.text}\n${text}` };
		else if (text !== "") parts.push({ kind, text });
	}
	return parts;
}

/** Returns the text of content that is one; undefined if it is something else. */
function contentText(item: unknown): string | undefined {
	const one = objectOf(item) ?? {};
	return typeof one.text === "string" ? one.text : undefined;
}

function otherContent(item: unknown): readonly Part[] {
	const one = objectOf(item);
	if (one === undefined) return valueParts("content", item);
	// Images of the agent server, and those of the Model Context Protocol.
	if (typeof one.data === "string" && typeof one.mimeType === "string")
		return valueParts("image", `data:${one.mimeType};base64,${one.data}`);
	const members = new Members(one, "type", "kind", "cache_prompt");
	const urls = members.take("image_urls");
	return [...listOf(urls).flatMap((url) => valueParts("image", url)), ...members.rest()];
}

/** Returns the address of a picture that a text is: a data: URL of an image. */
function pictureAddress(text: string): string | undefined {
	return /^data:image\/(png|jpeg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/=\s]+$/.test(text.slice(0, 200))
		? text
		: undefined;
}

/** Returns the data: URL of a screenshot in Base64. */
export function screenshotAddress(data: string): string {
	if (data.startsWith("data:")) return data;
	const kinds = { "/9j/": "jpeg", R0lGODlh: "gif", UklGR: "webp" };
	const [, kind = "png"] = Object.entries(kinds).find(([start]) => data.startsWith(start)) ?? [];
	return `data:image/${kind};base64,${data}`;
}

/** Returns the texts of parts, those within folds, too. */
export function textsOfParts(parts: readonly Part[]): readonly string[] {
	return parts.flatMap((part) => {
		switch (part.kind) {
			case "code":
				return [part.label, part.text];
			case "diff":
				return [part.path, part.before, part.after];
			case "picture":
				return [part.name];
			case "facts":
				return part.facts.flat();
			case "tasks":
				return part.tasks.flatMap(({ title, notes }) => [title, notes]);
			case "fold":
				return [part.title, ...textsOfParts(part.parts)];
			case "terminal":
				return [part.text, terminalText(part.text)];
			default:
				return [part.text];
		}
	});
}

export function listOf(value: unknown): readonly unknown[] {
	return Array.isArray(value) ? value : [];
}

export function objectOf(value: unknown): Json | undefined {
	const isObject = (one: unknown): one is Json => typeof one === "object" && one !== null && !Array.isArray(one);
	return isObject(value) ? value : undefined;
}

export function textOf(value: unknown): string {
	return typeof value === "string" ? value : "";
}
