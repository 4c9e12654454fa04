import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** Milliseconds for which a page says that something was copied. */
const SAID = 2_000;

/** Copies texts, and returns what to say about it. */
export function useCopy(): { readonly said: string; readonly copy: (text: string | Promise<string>) => void } {
	const said = useSignal("");
	useEffect(() => {
		if (said.value === "") return;
		const timer = setTimeout(() => {
			said.value = "";
		}, SAID);
		return () => clearTimeout(timer);
	}, [said.value]);
	const copy = (text: string | Promise<string>): void => {
		Promise.resolve(text)
			.then(copyText)
			.then(
				() => {
					said.value = "Copied";
				},
				() => {
					said.value = "This could not be copied";
				},
			);
	};
	return { said: said.value, copy };
}

/** Copies a text. A page that was not loaded over HTTPS or from this machine has no clipboard of its own to write to. */
async function copyText(text: string): Promise<void> {
	if (isSecureContext) {
		await navigator.clipboard.writeText(text);
		return;
	}
	const area = document.createElement("textarea");
	area.value = text;
	document.body.append(area);
	area.select();
	document.execCommand("copy");
	area.remove();
}
