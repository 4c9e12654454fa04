import { isMessage } from "@bufbuild/protobuf";
import { TimestampSchema, timestampDate } from "@bufbuild/protobuf/wkt";

/** What commands write. */

/** Writes a line to standard output. The program ends when the reader, such as `head`, has closed the pipe. */
export function print(text: string): void {
	if (process.stdout.listenerCount("error") === 0) process.stdout.on("error", () => process.exit(1));
	process.stdout.write(`${text}\n`);
}

/** Returns the lines of a table. A value that is missing is a dash. */
export function tableOf(rows: readonly (readonly unknown[])[]): readonly string[] {
	const texts = rows.map((row) => row.map(cell));
	const widths = texts[0]?.map((_, column) => Math.max(...texts.map((row) => row[column]?.length ?? 0))) ?? [];
	return texts.map((row) =>
		row
			.map((text, column) => text.padEnd(widths[column] ?? 0))
			.join("  ")
			.trimEnd(),
	);
}

function cell(value: unknown): string {
	if (isMessage(value, TimestampSchema)) return timestampDate(value).toISOString();
	if (typeof value === "boolean") return value ? "yes" : "no";
	return String(value ?? "") || "-";
}

/** Reports a failure that does not end the program. */
export function showError(fields: object, message: string): void {
	process.stderr.write(`${message}${"err" in fields ? `: ${reasonOf(fields.err)}` : ""}\n`);
}

/** Returns the message of an error and of its causes in one line. */
export function reasonOf(error: unknown): string {
	if (!(error instanceof Error)) return String(error);
	const message = error.message.replaceAll(/\s*\n\s*/g, " ");
	return error.cause === undefined ? message : `${message}: ${reasonOf(error.cause)}`;
}

export const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
export const rows = (count: number): string => `${count} rows`;
export const conversations = (count: number): string => `${count} conversations`;

interface Output {
	readonly isTTY?: boolean;
	write(text: string): unknown;
}

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
