import { type DiffPart, objectOf, textOf } from "./parts.ts";
import { lookOfStep, type Step } from "./steps.ts";
import { CHANGES_FILES } from "./tools.ts";

/** A file that the agent changed. */
export interface ChangedFile {
	readonly path: string;
	/** From the first known state to the last one, or, where only pieces are known, piece by piece. */
	readonly changes: readonly DiffPart[];
	/** The steps that changed it, in order. */
	readonly steps: readonly Step[];
}

/**
 * Returns the files that steps changed with the tools that report it, in order of their first change. What commands in
 * a terminal changed is not known.
 */
export function changedFiles(steps: readonly Step[]): readonly ChangedFile[] {
	const files = new Map<string, { readonly parts: DiffPart[]; readonly steps: Step[] }>();
	for (const step of steps) {
		if (step.failed || !mayChangeFiles(step)) continue;
		for (const part of lookOfStep(step).parts) {
			// A call without a result has not changed the file yet.
			if (part.kind !== "diff" || step.isOpen) continue;
			const file = files.get(part.path) ?? { parts: [], steps: [] };
			files.set(part.path, file);
			file.parts.push(part);
			if (file.steps.at(-1) !== step) file.steps.push(step);
		}
	}
	return [...files].map(([path, { parts, steps: own }]) => ({ path, changes: joined(path, parts), steps: own }));
}

function mayChangeFiles({ look, events: [first] }: Step): boolean {
	if (look !== "tool" || first === undefined) return false;
	return first.kind === "ACPToolCallEvent" || CHANGES_FILES.has(textOf(objectOf(first.members.action)?.kind));
}

/** Returns one change for the changes of a file if their whole texts are known. */
function joined(path: string, parts: readonly DiffPart[]): readonly DiffPart[] {
	const [first, last] = [parts[0], parts.at(-1)];
	if (first === undefined || last === undefined || !parts.every(({ isWhole }) => isWhole)) return parts;
	return first === last ? parts : [{ kind: "diff", path, before: first.before, after: last.after, isWhole: true }];
}
