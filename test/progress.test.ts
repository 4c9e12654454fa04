import { expect, test } from "vitest";
import { showProgress } from "../src/commands/output.ts";

function shown(steps: readonly number[]): string {
	let text = "";
	const output = { write: (piece: string) => (text += piece) };
	const onProgress = showProgress((total) => `${total} entries`, "copied", output);
	for (const done of steps) onProgress(done, 1_000);
	return text;
}

test("progress is a line for each completed tenth", () => {
	expect(shown([1, 99, 100, 250, 299, 1_000])).toBe(
		["0", "10", "20", "100"].map((percent) => `${percent} % of 1000 entries are copied\n`).join(""),
	);
});

test("there is no progress of nothing", () => {
	let text = "";
	showProgress(String, "copied", { write: (piece: string) => (text += piece) })(0, 0);
	expect(text).toBe("");
});
