/** The stream to which progress is written. */
interface Output {
	/** Whether it is a terminal. */
	readonly isTTY?: boolean;
	write(text: string): unknown;
}

/** Width of the bar in characters. */
const WIDTH = 20;
/** Moves a terminal's cursor up one line and clears that line (ECMA-48: CUU, EL). */
const OVER_LAST_LINE = "\u001b[1A\u001b[2K";

/**
 * Returns a function that shows progress: on a terminal as a bar in one line, in a file or a pipe as a line for each
 * completed tenth. Shows nothing of a total of 0.
 *
 * @param amount formats the total with its unit
 * @param verb past participle for the sentence "10 % of 40 entries are copied"
 */
export function showProgress(
	amount: (total: number) => string,
	verb: string,
	output: Output = process.stderr,
): (done: number, total: number) => void {
	const [steps, line] = output.isTTY === true ? [100, bar] : [10, sentence];
	let shown: number | undefined;
	return (done, total) => {
		if (total === 0) return;
		const step = Math.floor((done / total) * steps);
		if (step === shown) return;
		const over = output.isTTY === true && shown !== undefined ? OVER_LAST_LINE : "";
		shown = step;
		output.write(`${over}${line((step * 100) / steps, `${amount(total)} are ${verb}`)}\n`);
	};
}

function sentence(percent: number, what: string): string {
	return `${percent} % of ${what}`;
}

function bar(percent: number, what: string): string {
	const full = Math.floor((percent / 100) * WIDTH);
	return `[${"#".repeat(full)}${" ".repeat(WIDTH - full)}] ${sentence(percent, what)}`;
}

/**
 * Returns a function that says whether it is time to show progress: at the end, and before only so many milliseconds after
 * the last time.
 */
export function atMostEvery(interval: number): (isEnd?: boolean) => boolean {
	let shownAt = performance.now();
	return (isEnd = false) => {
		if (!isEnd && performance.now() - shownAt < interval) return false;
		shownAt = performance.now();
		return true;
	};
}
