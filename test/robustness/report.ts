/** Maximum number of violations that are kept. */
const MAX_VIOLATIONS = 20;
/** Maximum number of characters of a violation, which may quote an input. */
const MAX_VIOLATION_LENGTH = 8_000;
/** Outcomes that show a failure of the service. */
const FAULTS: ReadonlySet<string> = new Set([
	...["Unknown", "Internal", "DataLoss"],
	// Every client must get a response or be disconnected.
	"silence",
]);
/** Outcomes that ask the client to retry. They are correct only when the service is overloaded. */
const RETRY_LATER: ReadonlySet<string> = new Set(["503", "Unavailable"]);

/** Counts, figures and violated requirements of a run. */
export class Report {
	readonly #answers = new Map<string, Map<string, number>>();
	readonly #figures: string[] = [];
	readonly #broken: string[] = [];
	#brokenCount = 0;
	readonly #progress: (line: string) => void;
	readonly isTimed: boolean;

	/**
	 * @param progress is called with each line as soon as there is one
	 * @param isTimed whether slow answers are violations. Not in tests: the machine may be busy with other work.
	 */
	constructor(progress: (line: string) => void = () => undefined, isTimed = false) {
		this.#progress = progress;
		this.isTimed = isTimed;
	}

	/**
	 * Counts an outcome: the HTTP status, the name of an RPC's code or "OK", "closed" when the connection was closed, or
	 * "silence" without a response in time. A failure of the service is a violation.
	 *
	 * @param kind what was sent
	 * @param options.refusable whether the service may ask the client to retry
	 * @param options.sent returns a description from which the input can be sent again
	 */
	answer(
		kind: string,
		answer: string,
		options: { readonly refusable?: boolean; readonly sent?: () => string } = {},
	): void {
		const counts = this.#answers.get(kind) ?? new Map<string, number>();
		counts.set(answer, (counts.get(answer) ?? 0) + 1);
		this.#answers.set(kind, counts);
		const isFault = RETRY_LATER.has(answer) ? options.refusable !== true : FAULTS.has(answer) || /^5\d\d$/.test(answer);
		if (isFault) this.breaks(`${kind} was answered with ${answer}${options.sent ? `: ${options.sent()}` : ""}`);
	}

	/** Records a figure. */
	figure(line: string): void {
		this.#figures.push(line);
		this.#progress(line);
	}

	/** Records that the service violated a requirement. */
	breaks(violation: string): void {
		this.#brokenCount += 1;
		if (this.#broken.length >= MAX_VIOLATIONS) return;
		this.#broken.push(violation.slice(0, MAX_VIOLATION_LENGTH));
		this.#progress(`BROKEN: ${violation.slice(0, MAX_VIOLATION_LENGTH)}`);
	}

	/** Records a violation unless the condition holds. */
	expect(holds: boolean, violation: string): void {
		if (!holds) this.breaks(violation);
	}

	/** The first violations, and the number of further ones. */
	get broken(): readonly string[] {
		const others = this.#brokenCount - this.#broken.length;
		return others === 0 ? this.#broken : [...this.#broken, `and ${others} more`];
	}

	/** Returns the count of each outcome for each kind, and the figures. */
	lines(): string[] {
		const counts = [...this.#answers].map(([kind, answers]) => {
			const sorted = [...answers].sort(([a], [b]) => a.localeCompare(b));
			return `${kind}: ${sorted.map(([answer, count]) => `${answer} ${count}`).join(", ")}`;
		});
		return [...counts, ...this.#figures];
	}
}

/** Returns the result of a promise, or "silence" after the timeout, in milliseconds. */
export async function unlessSilent(answer: Promise<string>, timeout = 120_000): Promise<string> {
	let timer: NodeJS.Timeout | undefined;
	const silence = new Promise<string>((resolve) => {
		timer = setTimeout(() => resolve("silence"), timeout);
	});
	return await Promise.race([answer, silence]).finally(() => clearTimeout(timer));
}
