import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** A key that does something on the present page. */
export interface Shortcut {
	/** As in KeyboardEvent.key. */
	readonly key: string;
	readonly meaning: string;
	readonly run: () => void;
}

const shortcuts = signal<readonly Shortcut[]>([]);

/** The keys of the present page, for the page of help. */
export const activeShortcuts = shortcuts;

/** Makes keys work while the component is shown. */
export function useShortcuts(own: readonly Shortcut[]): void {
	useEffect(() => {
		shortcuts.value = [...shortcuts.value, ...own];
		return () => {
			shortcuts.value = shortcuts.value.filter((shortcut) => !own.includes(shortcut));
		};
	});
}

addEventListener("keydown", (event) => {
	if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
	const { target } = event;
	const types = target instanceof HTMLElement && target.matches("input, textarea, select");
	if (types && event.key !== "Escape") return;
	const shortcut = shortcuts.value.findLast(({ key }) => key === event.key);
	if (shortcut === undefined) return;
	event.preventDefault();
	shortcut.run();
});
