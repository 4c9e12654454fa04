import { useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { full } from "../../parts/format.ts";
import { Notice } from "../../parts/notice.tsx";
import { addressOf } from "../../shell/route.ts";
import { DiffView } from "./diff-view.tsx";
import { type DiffPart, objectOf, textOf } from "./parts.ts";
import type { OpenConversation } from "./state.ts";
import { lookOfStep, type Step } from "./steps.ts";
import { CHANGES_FILES } from "./tools.ts";

/** Number of files whose changes are shown at first. */
const OPEN = 10;

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

/** The files that the agent changed, each from its first to its last state. */
export function Files({ open }: { readonly open: OpenConversation }) {
	const steps = open.steps.value;
	const before = useRef<readonly ChangedFile[]>([]);
	const files = useMemo(() => {
		const next = changedFiles(steps).map((file) => unlessSame(file, before.current));
		before.current = next;
		return next;
	}, [steps]);
	if (files.length === 0)
		return (
			<Notice title={open.loadingEvents.value ? "Loading…" : "No file was changed"}>
				<span>Changes by the tools for files are shown here, and not those by commands in a terminal.</span>
			</Notice>
		);
	return (
		<>
			<p class="small muted">
				{full(files.length)} files, each from its first to its last state. Changes by commands in a terminal are not
				known.
			</p>
			{files.map((file, index) => (
				<File key={file.path} id={open.id} file={file} isOpen={index < OPEN} />
			))}
		</>
	);
}

/** Returns the file as it was if nothing of it has changed, so that its change is not compared again. */
function unlessSame(file: ChangedFile, before: readonly ChangedFile[]): ChangedFile {
	const old = before.find(({ path }) => path === file.path);
	const isSame =
		old !== undefined &&
		old.changes.length === file.changes.length &&
		old.changes.every(({ before: was, after }, index) => {
			const own = file.changes[index];
			return own?.before === was && own.after === after;
		});
	return isSame ? { ...file, changes: old.changes } : file;
}

function File({ id, file, isOpen }: { readonly id: string; readonly file: ChangedFile; readonly isOpen: boolean }) {
	const open = useSignal(isOpen);
	return (
		<section class="card file">
			<div class="row small">
				<button
					type="button"
					class="small more"
					aria-expanded={open.value}
					onClick={() => {
						open.value = !open.value;
					}}
				>
					<span aria-hidden="true">{open.value ? "▾" : "▸"}</span> {file.path}
				</button>
				<span>
					changed by{" "}
					{file.steps.slice(0, 5).map(({ sequence }, index) => (
						<a key={String(sequence)} href={addressOf(["conversations", id], { event: String(sequence) })}>
							{index === 0 ? `event ${sequence}` : `, ${sequence}`}
						</a>
					))}
					{file.steps.length > 5 && ` and ${full(file.steps.length - 5)} more`}
				</span>
			</div>
			{open.value && file.changes.map((change, index) => <DiffView key={index} part={change} />)}
		</section>
	);
}
