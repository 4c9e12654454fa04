import { structuredPatch } from "diff";
import type { DiffPart } from "./parts.ts";

/** A line of a change: its sign, and its numbers before and after, where it has them. */
export interface DiffLine {
	readonly kind: "added" | "removed" | "same" | "skipped";
	readonly text: string;
	readonly before: number | undefined;
	readonly after: number | undefined;
}

/** Lines around each change. */
const CONTEXT = 3;
/** Lines that may differ. With more, whose comparison takes long, all lines are shown as removed and added. */
const MAX_DIFFERENCES = 1_000;

/** A change line by line, and how much it changes. */
export interface DiffLines {
	readonly lines: readonly DiffLine[];
	readonly added: number;
	readonly removed: number;
}

const known = new WeakMap<DiffPart, DiffLines>();

/** Returns the lines of a change with those around them. */
export function diffLines(part: DiffPart): DiffLines {
	const before = known.get(part);
	if (before !== undefined) return before;
	const lines = compared(part);
	const count = (kind: DiffLine["kind"]) => lines.filter((line) => line.kind === kind).length;
	const found = { lines, added: count("added"), removed: count("removed") };
	known.set(part, found);
	return found;
}

function compared({ path, before, after, isWhole }: DiffPart): readonly DiffLine[] {
	const patch = structuredPatch(path, path, before, after, undefined, undefined, {
		context: isWhole ? CONTEXT : Number.POSITIVE_INFINITY,
		maxEditLength: MAX_DIFFERENCES,
	});
	if (patch === undefined) return [...wholeText(before, "removed"), ...wholeText(after, "added")];
	const lines: DiffLine[] = [];
	for (const { oldStart, newStart, lines: own } of patch.hunks) {
		if (lines.length > 0 || oldStart > 1)
			lines.push({ kind: "skipped", text: "", before: undefined, after: undefined });
		let [old, next] = [oldStart, newStart];
		for (const line of own) {
			const text = line.slice(1);
			if (line.startsWith("-")) lines.push({ kind: "removed", text, before: old++, after: undefined });
			else if (line.startsWith("+")) lines.push({ kind: "added", text, before: undefined, after: next++ });
			else if (line.startsWith(" ")) lines.push({ kind: "same", text, before: old++, after: next++ });
		}
	}
	return isWhole ? lines : lines.map((line) => ({ ...line, before: undefined, after: undefined }));
}

function wholeText(text: string, kind: "added" | "removed"): readonly DiffLine[] {
	if (text === "") return [];
	return text
		.replace(/\n$/, "")
		.split("\n")
		.map((line, index) => ({
			kind,
			text: line,
			before: kind === "removed" ? index + 1 : undefined,
			after: kind === "added" ? index + 1 : undefined,
		}));
}
