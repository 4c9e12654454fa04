import { signal } from "@preact/signals";
import { type Problem, problemOf, readCsv } from "../service/service.ts";
import { full } from "./format.ts";

/** Tells a spreadsheet that a file is in UTF-8. */
const BYTE_ORDER_MARK = "\ufeff";

/** Downloads in CSV, as the API writes them. */

/** Rows of a file at most: more than a spreadsheet of today opens at once. */
const MOST_ROWS = 200_000;
/** Pages that are read one after the other, with a thousand rows each. */
const MOST_PAGES = MOST_ROWS / 1_000;

/** What is known of the last download of a page. */
export class CsvDownload {
	/** Number of pages that were read; undefined while there is no download. */
	readonly pages = signal<number | undefined>(undefined);
	/** What a person has to know of the file. */
	readonly note = signal("");
	readonly problem = signal<Problem | undefined>(undefined);

	/**
	 * Reads a list or a report and saves it as a file. A list is read page by page; only texts of CSV are kept.
	 *
	 * @param path path below the folder of the page
	 * @param name name of the file without its ending
	 */
	async save(path: string, parameters: URLSearchParams, name: string): Promise<void> {
		if (this.pages.value !== undefined) return;
		this.problem.value = undefined;
		this.note.value = "";
		this.pages.value = 0;
		try {
			const texts: string[] = [];
			let next: URLSearchParams | undefined = parameters;
			while (next !== undefined && texts.length < MOST_PAGES) {
				const page: Awaited<ReturnType<typeof readCsv>> = await readCsv(`${path}?${next}`);
				// The header line stands in the first page only.
				texts.push(texts.length === 0 ? page.text : page.text.slice(page.text.indexOf("\n") + 1));
				next = page.next;
				this.pages.value = texts.length;
			}
			if (next !== undefined)
				this.note.value = `The file was cut: it has the first ${full(MOST_ROWS)} rows, and there are more.`;
			saveFile(
				new Blob([BYTE_ORDER_MARK, ...texts], { type: "text/csv" }),
				`${name}${next === undefined ? "" : "-cut"}.csv`,
			);
		} catch (error) {
			this.problem.value = problemOf(error);
		} finally {
			this.pages.value = undefined;
		}
	}
}

function saveFile(content: Blob, name: string): void {
	const link = document.createElement("a");
	link.href = URL.createObjectURL(content);
	link.download = name;
	link.click();
	URL.revokeObjectURL(link.href);
}
/** Says how far a download has come, that its file was cut, or why it failed. */
export function DownloadState({ csv }: { readonly csv: CsvDownload }) {
	const pages = csv.pages.value;
	const problem = csv.problem.value;
	return (
		<p class="small download" role="status">
			{problem !== undefined && <span class="problem-text">The file could not be read. {problem.text}</span>}
			{pages !== undefined && pages > 0 && `Reading the file, ${full(pages * 1_000)} rows so far…`}
			{csv.note.value}
		</p>
	);
}
