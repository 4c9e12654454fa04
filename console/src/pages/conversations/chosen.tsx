import { useSignal } from "@preact/signals";
import { full } from "../../parts/format.ts";
import { loadedLater } from "../../parts/loaded-later.tsx";
import { useScope } from "../../service/caller.ts";
import { addressOf } from "../../shell/route.ts";
import type { ConversationList } from "./state.ts";

const EraseDialog = loadedLater<Parameters<typeof import("./erase.tsx")["default"]>[0]>(() => import("./erase.tsx"), {
	waiting: null,
	failed: () => <span class="problem-text small">The dialog cannot be loaded now.</span>,
});

/** What can be done with the conversations that a person chose. */
export function ChosenBar({ list }: { readonly list: ConversationList }) {
	const mayErase = useScope("erase");
	const erases = useSignal(false);
	const chosen = [...list.picked.value];
	const [[a = ""] = [], [b = ""] = []] = chosen;
	return (
		<section class="card row chosen-bar" aria-label="Chosen conversations">
			<strong>{full(chosen.length)} chosen</strong>
			{chosen.length === 2 ? (
				<a class="button" href={addressOf(["compare"], { a, b })}>
					Compare
				</a>
			) : (
				<span class="small muted">Choose two to compare them.</span>
			)}
			{mayErase && (
				<button
					type="button"
					onClick={() => {
						erases.value = true;
					}}
				>
					Erase…
				</button>
			)}
			<button
				type="button"
				onClick={() => {
					list.picked.value = new Map();
				}}
			>
				Choose none
			</button>
			{erases.value && (
				<EraseDialog
					chosen={list.picked.value}
					onErased={() => {
						list.picked.value = new Map();
						list.reload();
					}}
					onClose={() => {
						erases.value = false;
					}}
				/>
			)}
		</section>
	);
}
