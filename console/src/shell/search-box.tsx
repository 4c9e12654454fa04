import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useShortcuts } from "./keys.ts";
import { addressOf, go, path, query } from "./route.ts";

/** Number of times that a person asked for the search of the present address again. */
export const searchedAgain = signal(0);

/** The box of the search in all conversations. Its text goes into the address. */
export function SearchBox() {
	const input = useRef<HTMLInputElement>(null);
	const isSearch = path.value[0] === "search";
	const present = isSearch ? (query.value.get("query") ?? "") : "";
	const reset = (): void => {
		if (input.current !== null) input.current.value = present;
	};
	// At once: later it would replace what a person has typed since.
	useLayoutEffect(reset, [present, isSearch]);
	useShortcuts([
		{
			key: "/",
			meaning: "search in all conversations",
			run: () => {
				input.current?.focus();
				input.current?.select();
			},
		},
	]);
	const search = (): void => {
		const text = input.current?.value.trim() ?? "";
		if (text === "") return;
		// Filters and order of the search stay; those of other pages mean something else.
		const parameters = new URLSearchParams(isSearch ? query.value : []);
		parameters.set("query", text);
		const address = addressOf(["search"], parameters);
		// What was found before, and is shown to who comes back, is not what is there now.
		if (address === location.hash || !isSearch) searchedAgain.value += 1;
		if (address !== location.hash) go(address);
		document.getElementById("main")?.focus();
	};
	return (
		<form
			class="search-box"
			role="search"
			onSubmit={(event) => {
				event.preventDefault();
				search();
			}}
		>
			<input
				ref={input}
				type="search"
				aria-label="Search in all conversations"
				placeholder="Search  ( / )"
				onKeyDown={(event) => {
					if (event.key !== "Escape") return;
					event.preventDefault();
					reset();
					input.current?.blur();
				}}
			/>
		</form>
	);
}
