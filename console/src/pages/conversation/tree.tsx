import { useSignal } from "@preact/signals";
import { LongText } from "../../parts/long-text.tsx";

/** Number of members of an object that are shown at once. */
const SHOWN = 200;

/** A JSON value as a tree that opens by and by. Texts are shown as they are, never as markup. */
export function Tree({
	value,
	name,
	depth = 0,
}: {
	readonly value: unknown;
	readonly name: string;
	readonly depth?: number;
}) {
	const open = useSignal(depth < 1);
	const shown = useSignal(SHOWN);
	if (typeof value !== "object" || value === null)
		return (
			<div class="tree">
				<span class="tree-name">{name}</span>{" "}
				<span class="tree-value">
					<LongText text={value === undefined ? "–" : JSON.stringify(value)} />
				</span>
			</div>
		);
	const members = Object.entries(value);
	const brackets = Array.isArray(value) ? `[${members.length}]` : `{${members.length}}`;
	return (
		<div class="tree">
			<button
				type="button"
				class="tree-toggle"
				aria-expanded={open.value}
				onClick={() => {
					open.value = !open.value;
				}}
			>
				<span aria-hidden="true">{open.value ? "▾" : "▸"}</span> {name} <span class="muted">{brackets}</span>
			</button>
			{open.value && (
				<div class="tree-members">
					{members.slice(0, shown.value).map(([key, member]) => (
						<Tree key={key} name={key} value={member} depth={depth + 1} />
					))}
					{members.length > shown.value && (
						<button
							type="button"
							onClick={() => {
								shown.value += SHOWN;
							}}
						>
							Show more
						</button>
					)}
				</div>
			)}
		</div>
	);
}
