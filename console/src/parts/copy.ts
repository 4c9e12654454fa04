/** Copies a text. A page that was not loaded over HTTPS or from this machine has no clipboard of its own to write to. */
export function copyText(text: string): void {
	if (isSecureContext) {
		void navigator.clipboard.writeText(text);
		return;
	}
	const area = document.createElement("textarea");
	area.value = text;
	document.body.append(area);
	area.select();
	document.execCommand("copy");
	area.remove();
}
