import { createClient } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ConversationEraseService } from "../../../../gen/conversations/v1/conversation_erase_service_pb.js";
import { full } from "../../parts/format.ts";
import { problemOf, transport } from "../../service/service.ts";

const client = createClient(ConversationEraseService, transport);

/** Number of conversations that one call erases. */
const TOGETHER = 50;
/** Number of titles that the dialog names. */
const NAMED = 8;

interface EraseProps {
	/** Labels of the chosen conversations by their ids. */
	readonly chosen: ReadonlyMap<string, string>;
	/** Called when all that were still there are erased. */
	readonly onErased: () => void;
	readonly onClose: () => void;
}

/** Erases the chosen conversations for good, after their number was typed. */
export default function EraseDialog({ chosen, onErased, onClose }: EraseProps) {
	const dialog = useRef<HTMLDialogElement>(null);
	const typed = useSignal("");
	const erased = useSignal<bigint | undefined>(undefined);
	const problem = useSignal("");
	useEffect(() => dialog.current?.showModal(), []);
	const number = chosen.size;
	const labels = [...chosen.values()];
	const isConfirmed = typed.value.trim() === String(number);
	const erase = async (): Promise<void> => {
		if (!isConfirmed || erased.value !== undefined) return;
		problem.value = "";
		erased.value = 0n;
		try {
			const ids = [...chosen.keys()];
			for (let start = 0; start < ids.length; start += TOGETHER) {
				const some = ids.slice(start, start + TOGETHER);
				const answer = await client.deleteConversations({ filter: { ids: some }, max: TOGETHER });
				erased.value += answer.erased;
			}
			onErased();
			dialog.current?.close();
		} catch (error) {
			// The same request again erases the rest.
			problem.value = `${problemOf(error).text} ${full(erased.value)} of ${full(number)} are erased.`;
			erased.value = undefined;
		}
	};
	return (
		<dialog ref={dialog} aria-labelledby="erase-title" class="erase" onClose={onClose}>
			<form
				onSubmit={(event) => {
					event.preventDefault();
					void erase();
				}}
			>
				<h2 id="erase-title">Erase {number === 1 ? "1 conversation" : `${full(number)} conversations`} for good</h2>
				<ul>
					{labels.slice(0, NAMED).map((label, index) => (
						<li key={index}>{label}</li>
					))}
					{number > NAMED && <li class="muted">and {full(number - NAMED)} more</li>}
				</ul>
				<p>
					Their records, history and events are removed and cannot be brought back. Sums of usage stay, and so do their
					children.
				</p>
				<label class="row">
					Type {number} to confirm
					<input
						type="text"
						inputMode="numeric"
						autocomplete="off"
						value={typed.value}
						onInput={(event) => {
							typed.value = event.currentTarget.value;
						}}
					/>
				</label>
				{problem.value !== "" && (
					<p class="problem-text" role="alert">
						{problem.value}
					</p>
				)}
				<p class="row">
					<button type="submit" class="danger" disabled={!isConfirmed || erased.value !== undefined}>
						{erased.value === undefined ? "Erase" : `Erasing, ${full(erased.value)} so far…`}
					</button>
					<button type="button" onClick={() => dialog.current?.close()}>
						Cancel
					</button>
				</p>
			</form>
		</dialog>
	);
}
