import { useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { full } from "../../parts/format.ts";
import { Notice } from "../../parts/notice.tsx";
import { addressOf } from "../../shell/route.ts";
import { type ChangedFile, changedFiles } from "./changed-files.ts";
import { DiffView } from "./diff-view.tsx";
import type { OpenConversation } from "./state.ts";

/** Number of files whose changes are shown at first. */
const OPEN = 10;

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
