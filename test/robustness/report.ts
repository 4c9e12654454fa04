/** Broken laws that are told in full. */
const MOST_TOLD = 20;
/** Characters of one of them, which may have a whole input in it. */
const LONGEST_TOLD = 8_000;
/** Answers that say that the service has failed. */
const FAULTS: ReadonlySet<string> = new Set([
	...["Unknown", "Internal", "DataLoss"],
	// Whatever a client did, it is answered or cut off.
	"silence",
]);
/** Answers that ask to try again: right where the service is given more than it can do, and nowhere else. */
const UNAVAILABLE: ReadonlySet<string> = new Set(["503", "Unavailable"]);

/** What a run has counted and measured, and which laws the service broke. */
export class Report {
	readonly #answers = new Map<string, Map<string, number>>();
	readonly #figures: string[] = [];
	readonly #broken: string[] = [];
	#brokenCount = 0;
	readonly #progress: (line: string) => void;

	/** @param progress is given each line as it arises */
	constructor(progress: (line: string) => void = () => undefined) {
		this.#progress = progress;
	}

	/**
	 * Counts an answer: the status of HTTP, the name of an RPC's code or "OK", "closed" for a connection that was cut off,
	 * "silence" when nothing came. One that says that the service has failed breaks a law.
	 *
	 * @param kind what was sent
	 * @param options.refusable whether the service may ask to try again
	 * @param options.sent tells how to send it again
	 */
	answer(
		kind: string,
		answer: string,
		options: { readonly refusable?: boolean; readonly sent?: () => string } = {},
	): void {
		const counts = this.#answers.get(kind) ?? new Map<string, number>();
		counts.set(answer, (counts.get(answer) ?? 0) + 1);
		this.#answers.set(kind, counts);
		const isFault = UNAVAILABLE.has(answer) ? options.refusable !== true : FAULTS.has(answer) || /^5\d\d$/.test(answer);
		if (isFault) this.breaks(`${kind} was answered with ${answer}${options.sent ? `: ${options.sent()}` : ""}`);
	}

	/** Keeps a figure. */
	figure(line: string): void {
		this.#figures.push(line);
		this.#progress(line);
	}

	/** Tells that the service did what it must not. */
	breaks(law: string): void {
		this.#brokenCount += 1;
		if (this.#broken.length >= MOST_TOLD) return;
		this.#broken.push(law.slice(0, LONGEST_TOLD));
		this.#progress(`BROKEN: ${law.slice(0, LONGEST_TOLD)}`);
	}

	/** Tells of a broken law unless a condition holds. */
	expect(holds: boolean, law: string): void {
		if (!holds) this.breaks(law);
	}

	/** The laws that were broken, the first ones in full. */
	get broken(): readonly string[] {
		const others = this.#brokenCount - this.#broken.length;
		return others === 0 ? this.#broken : [...this.#broken, `and ${others} more`];
	}

	/** How often each kind was answered with what, and the figures. */
	lines(): string[] {
		const counts = [...this.#answers].map(([kind, answers]) => {
			const sorted = [...answers].sort(([a], [b]) => a.localeCompare(b));
			return `${kind}: ${sorted.map(([answer, count]) => `${answer} ${count}`).join(", ")}`;
		});
		return [...counts, ...this.#figures];
	}
}

/** What a promise gives, or "silence" when that takes longer than anyone waits. */
export async function unlessSilent(answer: Promise<string>, patience = 30_000): Promise<string> {
	let timer: NodeJS.Timeout | undefined;
	const silence = new Promise<string>((resolve) => {
		timer = setTimeout(() => resolve("silence"), patience);
	});
	return await Promise.race([answer, silence]).finally(() => clearTimeout(timer));
}
