/** A condition for the service to be ready for requests. */
export type ReadinessCheck = "store" | "accepting";

/** Whether the service is ready: the store accepts writes, and the service is not stopping. Initially ready. */
export class Readiness {
	readonly #failing = new Map<ReadinessCheck, Date>();
	readonly #onChange: (ready: boolean) => void;

	/** @param onChange called whenever the overall readiness changes */
	constructor(onChange: (ready: boolean) => void) {
		this.#onChange = onChange;
	}

	/** Records the result of a check. */
	set(check: ReadinessCheck, succeeds: boolean): void {
		const before = this.ready;
		if (succeeds) this.#failing.delete(check);
		else if (!this.#failing.has(check)) this.#failing.set(check, new Date());
		if (this.ready !== before) this.#onChange(this.ready);
	}

	/** Whether a check succeeds. */
	passes(check: ReadinessCheck): boolean {
		return !this.#failing.has(check);
	}

	/** Whether all checks succeed. */
	get ready(): boolean {
		return this.#failing.size === 0;
	}

	/** The failing checks, each with the time since when it has failed, in ISO 8601. */
	get failing(): { check: ReadinessCheck; since: string }[] {
		return [...this.#failing].map(([check, since]) => ({ check, since: since.toISOString() }));
	}
}
