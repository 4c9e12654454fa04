import { useSignal } from "@preact/signals";
import { useContext, useMemo } from "preact/hooks";
import { full } from "../../parts/format.ts";
import { LongText } from "../../parts/long-text.tsx";
import { type DiffLine, diffLines } from "./diff-lines.ts";
import { ShowingContext } from "./formatted.tsx";
import type { DiffPart } from "./parts.ts";

/** Lines of a change that are shown before it is opened. */
const SHOWN = 30;
/** Lines of a block, of which only those in view are laid out. */
const BLOCK = 50;

const SIGNS: Readonly<Record<DiffLine["kind"], string>> = { added: "+", removed: "−", same: " ", skipped: "⋯" };
const WORDS: Readonly<Record<DiffLine["kind"], string>> = {
	added: "added:",
	removed: "removed:",
	same: "",
	skipped: "unchanged lines are left out",
};

/** A change of a file, line by line. */
export function DiffView({ part }: { readonly part: DiffPart }) {
	const { isStatic, opens } = useContext(ShowingContext);
	const { lines, added, removed } = useMemo(() => diffLines(part), [part]);
	const long = !isStatic && lines.length > SHOWN + 5;
	const isFound = useMemo(() => long && (opens(part.after) || opens(part.before)), [long, opens, part]);
	const opened = useSignal<boolean | undefined>(undefined);
	const open = opened.value ?? isFound;
	const shown = long && !open ? lines.slice(0, SHOWN) : lines;
	const blocks = [];
	for (let from = 0; from < shown.length; from += BLOCK) blocks.push(shown.slice(from, from + BLOCK));
	return (
		<div class="diff">
			<p class="small muted label">
				<span class="diff-path">{part.path}</span> <span class="count-added">+{full(added)}</span>{" "}
				<span class="count-removed">−{full(removed)}</span>
			</p>
			<div class="diff-lines" role="region" aria-label={`Change of ${part.path}`} tabIndex={isStatic ? undefined : 0}>
				{blocks.map((block, index) => (
					<div
						key={index}
						class={blocks.length > 2 ? "text-block" : ""}
						style={blocks.length > 2 ? { containIntrinsicBlockSize: `auto ${block.length}lh` } : {}}
					>
						{block.map(({ kind, text, before, after }, at) => (
							<div key={at} class={`diff-line ${kind}`}>
								{part.isWhole && (
									<>
										<span class="line-number">{before}</span>
										<span class="line-number">{after}</span>
									</>
								)}
								<span aria-hidden="true">{SIGNS[kind]}</span>
								<span class="visually-hidden">{WORDS[kind]}</span>
								<span class="diff-text">
									<LongText text={text} />
								</span>
							</div>
						))}
					</div>
				))}
			</div>
			{long && (
				<button
					type="button"
					class="small more"
					aria-expanded={open}
					onClick={() => {
						opened.value = !open;
					}}
				>
					{open ? "show less" : `show all ${full(lines.length)} lines of the change`}
				</button>
			)}
		</div>
	);
}
