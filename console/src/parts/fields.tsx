import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { problemOf } from "../service/service.ts";
import { useCopy } from "./copy.ts";

interface TextFieldProps {
	readonly label: string;
	readonly text: Signal<string>;
	readonly placeholder?: string;
	readonly required?: boolean;
	readonly pattern?: string;
	readonly inputMode?: "numeric";
}

/** A line of text with its label. */
export function TextField({ label, text, ...attributes }: TextFieldProps) {
	return (
		<label class="row">
			{label}
			<input
				type="text"
				autocomplete="off"
				{...attributes}
				value={text.value}
				onInput={(event) => {
					text.value = event.currentTarget.value;
				}}
			/>
		</label>
	);
}

interface ChoiceFieldProps {
	readonly label: string;
	/** Value of the chosen option. */
	readonly chosen: Signal<string>;
	/** Words of the options by their values. */
	readonly options: ReadonlyMap<string, string>;
}

/** A choice of one, with its label. */
export function ChoiceField({ label, chosen, options }: ChoiceFieldProps) {
	return (
		<label class="row">
			{label}
			<select
				value={chosen.value}
				onChange={(event) => {
					chosen.value = event.currentTarget.value;
				}}
			>
				{[...options].map(([value, words]) => (
					<option key={value} value={value}>
						{words}
					</option>
				))}
			</select>
		</label>
	);
}

interface CheckFieldsProps<Name extends string> {
	readonly legend: string;
	/** Names that can be chosen, each with what it means, or with nothing. */
	readonly names: ReadonlyMap<Name, string>;
	readonly chosen: Signal<ReadonlySet<Name>>;
	/** Whether the names stand beside each other. Default: each has a line. */
	readonly isWrapped?: boolean;
}

/** A choice of any number. */
export function CheckFields<Name extends string>({ legend, names, chosen, isWrapped }: CheckFieldsProps<Name>) {
	return (
		<fieldset class={isWrapped ? "checks wrapped" : "checks"}>
			<legend class="small muted">{legend}</legend>
			{[...names].map(([name, words]) => (
				<label key={name}>
					<input
						type="checkbox"
						checked={chosen.value.has(name)}
						onChange={(event) => {
							const next = new Set(chosen.value);
							if (event.currentTarget.checked) next.add(name);
							else next.delete(name);
							chosen.value = next;
						}}
					/>
					<code>{name}</code> {words !== "" && <span class="muted">{words}</span>}
				</label>
			))}
		</fieldset>
	);
}

/** Why what was asked for was not done. */
export function Refusal({ text }: { readonly text: string }) {
	if (text === "") return null;
	return (
		<span class="problem-text" role="alert">
			{text}
		</span>
	);
}

interface ShownOnceProps {
	/** Says what the text is. */
	readonly children: ComponentChildren;
	readonly text: string;
	readonly onDone: () => void;
}

/** A secret that cannot be shown again, with a button that copies it. */
export function ShownOnce({ children, text, onDone }: ShownOnceProps) {
	const { said, copy } = useCopy();
	return (
		<div class="shown-once" role="status">
			<p>{children}</p>
			<pre>{text}</pre>
			<p class="row">
				<button type="button" onClick={() => copy(text)}>
					Copy
				</button>
				<button type="button" onClick={onDone}>
					Done
				</button>
				<span class="small muted">{said}</span>
			</p>
		</div>
	);
}

interface ConfirmDialogProps {
	readonly title: string;
	/** Says what cannot be undone. */
	readonly children: ComponentChildren;
	/** Words of the button. */
	readonly action: string;
	readonly act: () => Promise<unknown>;
	/** Called when the dialog closes, also without the act. */
	readonly onClose: () => void;
}

/** Asks before something is done for good. A refusal stays in the dialog. */
export function ConfirmDialog({ title, children, action, act, onClose }: ConfirmDialogProps) {
	const dialog = useRef<HTMLDialogElement>(null);
	const problem = useSignal("");
	useEffect(() => dialog.current?.showModal(), []);
	const confirm = (): void => {
		act().then(
			() => dialog.current?.close(),
			(error: unknown) => {
				problem.value = problemOf(error).text;
			},
		);
	};
	return (
		<dialog ref={dialog} aria-label={title} onClose={onClose}>
			<h2>{title}</h2>
			<p>{children}</p>
			<p class="row">
				<button type="button" class="danger" onClick={confirm}>
					{action}
				</button>
				<button type="button" onClick={() => dialog.current?.close()}>
					Cancel
				</button>
				<Refusal text={problem.value} />
			</p>
		</dialog>
	);
}
