/** What a service needs to be ready for requests. */
export type ReadinessCheck = "store" | "accepting";

/** Whether the service is ready: the store takes writes, and the service is not about to stop. Ready at first. */
export class Readiness {
	readonly #failing = new Map<ReadinessCheck, Date>();
	readonly #onChange: (ready: boolean) => void;

	/** @param onChange called with each change of the whole */
	constructor(onChange: (ready: boolean) => void) {
		this.#onChange = onChange;
	}

	/** Tells the outcome of a check. */
	set(check: ReadinessCheck, succeeds: boolean): void {
		const before = this.ready;
		if (succeeds) this.#failing.delete(check);
		else if (!this.#failing.has(check)) this.#failing.set(check, new Date());
		if (this.ready !== before) this.#onChange(this.ready);
	}

	get ready(): boolean {
		return this.#failing.size === 0;
	}

	/** The checks that fail, and since when, in ISO 8601. */
	get failing(): { check: ReadinessCheck; since: string }[] {
		return [...this.#failing].map(([check, since]) => ({ check, since: since.toISOString() }));
	}
}
