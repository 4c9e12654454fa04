/** Milliseconds of a window. */
const WINDOW = 10_000;
/** Default maximum number of lines of one kind in a window. */
const LINES = 10;

/** What lines have in common that are counted together. Only values from small sets, and none that a client chooses. */
export type LineKind = Readonly<Record<string, string | undefined>>;

/**
 * Limits the lines of each kind to 10 in a window of 10 seconds, and counts those that are left out. The first line
 * starts a window.
 */
export class LineLimit<Kind extends LineKind> {
	readonly #report: (kind: Kind, leftOut: number) => void;
	readonly #limit: number;
	readonly #counted = new Map<string, { readonly kind: Kind; lines: number }>();
	#timer: NodeJS.Timeout | undefined;

	/** @param report called at the end of a window for each kind of which lines were left out, with their number */
	constructor(report: (kind: Kind, leftOut: number) => void, limit = LINES) {
		this.#report = report;
		this.#limit = limit;
	}

	/** Counts a line. Returns whether it is to be written. */
	admits(kind: Kind): boolean {
		this.#timer ??= setTimeout(() => this.endWindow(), WINDOW).unref();
		const counted = this.#counted.getOrInsertComputed(JSON.stringify(kind), () => ({ kind, lines: 0 }));
		counted.lines += 1;
		return counted.lines <= this.#limit;
	}

	/** Ends the window at once, and reports what was left out in it. */
	endWindow(): void {
		clearTimeout(this.#timer);
		this.#timer = undefined;
		const ended = [...this.#counted.values()];
		this.#counted.clear();
		for (const { kind, lines } of ended) if (lines > this.#limit) this.#report(kind, lines - this.#limit);
	}
}
