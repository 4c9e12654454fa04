import { expect, test } from "vitest";
import { showProgress } from "../src/commands/output.ts";

function shown(isTTY: boolean, steps: readonly number[]): string {
	let text = "";
	const output = { isTTY, write: (piece: string) => (text += piece) };
	const onProgress = showProgress((total) => `${total} entries`, "copied", output);
	for (const done of steps) onProgress(done, 1_000);
	return text;
}

test("progress is a line for each completed tenth when the output is not a terminal", () => {
	expect(shown(false, [1, 99, 100, 250, 299, 1_000])).toBe(
		["0", "10", "20", "100"].map((percent) => `${percent} % of 1000 entries are copied\n`).join(""),
	);
});

test("there is no progress of nothing", () => {
	let text = "";
	showProgress(String, "copied", { write: (piece: string) => (text += piece) })(0, 0);
	expect(text).toBe("");
});

test("progress is a bar in one line on a terminal", () => {
	const over = "\u001b[1A\u001b[2K";
	expect(shown(true, [1, 9, 255, 259, 1_000])).toBe(
		[
			"[                    ] 0 % of 1000 entries are copied\n",
			`${over}[#####               ] 25 % of 1000 entries are copied\n`,
			`${over}[####################] 100 % of 1000 entries are copied\n`,
		].join(""),
	);
});
