import type { Value } from "@bufbuild/protobuf/wkt";
import { scoreNumber } from "./format.ts";

/** Name of the scores that people give by a key: true is a thumb up. */
export const THUMBS = "thumbs";
/** Name of the results of critics, which events carry. */
export const CRITIC = "critic";

/** A number, true or false, or a category. */
export type PlainScore = number | boolean | string;

/** Returns the value of a score; undefined without one. */
export function plainScore(value: Value | undefined): PlainScore | undefined {
	switch (value?.kind.case) {
		case "boolValue":
		case "numberValue":
		case "stringValue":
			return value.kind.value;
		default:
			return undefined;
	}
}

/** Returns the score of a name, of the scores that lists have by their names; undefined if there is none. */
export function scoreNamed(scores: Readonly<Record<string, Value>> = {}, name: string): PlainScore | undefined {
	return Object.hasOwn(scores, name) ? plainScore(scores[name]) : undefined;
}

interface ScoreValueProps {
	readonly name: string;
	/** Undefined: there is no such score. */
	readonly value: PlainScore | undefined;
}

/** The value of a score. */
export function ScoreValue({ name, value }: ScoreValueProps) {
	if (value === undefined) return <span class="muted">–</span>;
	if (typeof value === "number") return <>{scoreNumber(value)}</>;
	if (typeof value === "string") return <>{value}</>;
	const [glyph, word] = name === THUMBS ? [<Thumb isUp={value} />, value ? "up" : "down"] : [value ? "✓" : "✗", value];
	return (
		<span class={`score-value ${value ? "finished" : "error"}`}>
			<span aria-hidden="true">{glyph}</span> {String(word)}
		</span>
	);
}

/** A thumb, in the color of the text. */
export function Thumb({ isUp }: { readonly isUp: boolean }) {
	return (
		<svg class="thumb" viewBox="0 0 24 24" aria-hidden="true">
			<path
				transform={isUp ? "" : "rotate(180 12 12)"}
				d="M3 11h4v10H3zM7 12l4-9c2 0 3 1.2 2.6 3L13 9.5h5.6c1.6 0 2.6 1 2.3 2.5l-1.4 7c-.3 1.3-1.2 2-2.5 2H7"
			/>
		</svg>
	);
}
