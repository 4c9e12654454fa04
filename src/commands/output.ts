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

/**
 * Returns a function that shows progress on standard error, in a line for each completed tenth. Shows nothing of a total
 * of 0.
 *
 * @param amount formats the total with its unit
 * @param verb past participle for the sentence "10 % of 40 entries are copied"
 */
export function showProgress(
	amount: (total: number) => string,
	verb: string,
	output: { write(text: string): unknown } = process.stderr,
): (done: number, total: number) => void {
	let shown: number | undefined;
	return (done, total) => {
		const step = Math.floor((done / total) * 10);
		if (total === 0 || step === shown) return;
		shown = step;
		output.write(`${step * 10} % of ${amount(total)} are ${verb}\n`);
	};
}
