import { ServiceError } from "../errors.ts";

/** What is known of a run. */
export interface RunState<Progress> {
	readonly progress: Progress;
	readonly running: boolean;
	/** Why it ended early; undefined if it did not. */
	readonly error: unknown;
}

/** The last run that a command started. Commands look at its state until it has ended. */
export class StartedRun<Progress> {
	readonly #messages: { readonly none: string; readonly underWay: string };
	#state: RunState<Progress> | undefined;

	/** @param messages of errors: that there was no run, and that there is one under way */
	constructor(messages: { readonly none: string; readonly underWay: string }) {
		this.#messages = messages;
	}

	/**
	 * The state of the last run.
	 *
	 * @throws ServiceError `not_found` when there was none
	 */
	get state(): RunState<Progress> {
		if (this.#state === undefined) throw new ServiceError("not_found", this.#messages.none);
		return this.#state;
	}

	/** The error for a run that cannot start because of another one. */
	get underWay(): ServiceError {
		return new ServiceError("failed_precondition", this.#messages.underWay);
	}

	/**
	 * Starts a run, and returns before it has ended.
	 *
	 * @param progress before the run has done anything
	 * @throws ServiceError `failed_precondition` while the last run is under way
	 */
	start(progress: Progress, work: (onProgress: (progress: Progress) => void) => Promise<void>): void {
		if (this.#state?.running) throw this.underWay;
		let last = progress;
		const show = (running: boolean, error?: unknown) => {
			this.#state = { progress: last, running, error };
		};
		show(true);
		const running = work((now) => {
			last = now;
			show(true);
		});
		running.then(
			() => show(false),
			(error: unknown) => show(false, error),
		);
	}
}
