import { type Signal, useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";

/** Pixels from the end of the page within which its end counts as shown. */
const END = 60;

/**
 * Whether the newest step is kept in view: from the start, until the person scrolls back, and again at the end of the
 * page. A run that begins later is followed by who is at the end already.
 *
 * @param possible whether there is something to follow
 */
export function useFollowing(possible: boolean): Signal<boolean> {
	const follows = useSignal(possible);
	useLayoutEffect(() => {
		if (!possible) {
			follows.value = false;
			return;
		}
		if (isAtEnd()) follows.value = true;
		const ended = new AbortController();
		const { signal } = ended;
		// Whether the person moved on last. The end of a scroll of the page itself says nothing about them.
		let forward = false;
		const listen = <Name extends keyof WindowEventMap>(
			name: Name,
			wayOf: (event: WindowEventMap[Name]) => "back" | "forward" | "either" | undefined,
		) =>
			addEventListener(
				name,
				(event) => {
					const way = wayOf(event);
					if (way === undefined) return;
					if (way !== "forward") follows.value = false;
					forward = way !== "back";
				},
				{ signal, passive: true },
			);
		listen("wheel", ({ deltaY }) => (deltaY < 0 ? "back" : "forward"));
		listen("touchmove", () => "either");
		listen("keydown", ({ key, shiftKey, target }) => {
			if (target instanceof HTMLInputElement) return undefined;
			if (["ArrowUp", "PageUp", "Home", "Tab"].includes(key) || (key === " " && shiftKey)) return "back";
			return ["ArrowDown", "PageDown", "End", " "].includes(key) ? "forward" : undefined;
		});
		// On the scroll bar.
		listen("pointerdown", ({ clientX }) => (clientX >= document.documentElement.clientWidth ? "either" : undefined));
		addEventListener(
			"scrollend",
			() => {
				if (forward && isAtEnd()) follows.value = true;
			},
			{ signal },
		);
		return () => ended.abort();
	}, [possible]);
	return follows;
}

function isAtEnd(): boolean {
	return innerHeight + scrollY >= document.documentElement.scrollHeight - END;
}
