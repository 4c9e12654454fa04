import { useLayoutEffect } from "preact/hooks";

/** A key that does something on the present page. */
export interface Shortcut {
	/** As in KeyboardEvent.key. */
	readonly key: string;
	readonly meaning: string;
	readonly run: () => void;
	/** Whether a key that is held does it once only. Default: false. */
	readonly once?: boolean;
}

let shortcuts: readonly Shortcut[] = [];

/** Returns the keys of the present page, for the page of help. */
export function activeShortcuts(): readonly Shortcut[] {
	return shortcuts;
}

/** Makes keys work while the component is shown. */
export function useShortcuts(own: readonly Shortcut[]): void {
	// Before the next key, which would find what was shown before.
	useLayoutEffect(() => {
		shortcuts = [...shortcuts, ...own];
		return () => {
			shortcuts = shortcuts.filter((shortcut) => !own.includes(shortcut));
		};
	});
}

addEventListener("keydown", (event) => {
	if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
	// An open dialog has keys of its own.
	if (document.querySelector("dialog[open]") !== null) return;
	const { target } = event;
	const types = target instanceof HTMLElement && target.matches("input, textarea, select");
	if (types && event.key !== "Escape") return;
	const shortcut = shortcuts.findLast(({ key }) => key === event.key);
	if (shortcut === undefined) return;
	event.preventDefault();
	if (!(event.repeat && shortcut.once)) shortcut.run();
});
