import { ServiceError } from "../errors.ts";

/** What is known of a run. */
export interface RunState<Progress> {
	readonly progress: Progress;
	readonly running: boolean;
	/** Why it ended early; undefined if it did not. */
	readonly error: unknown;
}

/** Milliseconds after which a run ends that no command looks at: the one that started it was killed. */
const UNWATCHED = 30_000;

/** The last run that a command started. Commands look at its state until it has ended. */
export class StartedRun<Progress> {
	readonly #messages: { readonly none: string; readonly underWay: string };
	readonly #unwatched: number;
	#state: RunState<Progress> | undefined;
	/** Ends the run when nobody has looked at it for long. */
	#watch: NodeJS.Timeout | undefined;

	/**
	 * @param messages of errors: that there was no run, and that there is one under way
	 * @param unwatched milliseconds after which a run ends that no command looks at
	 */
	constructor(messages: { readonly none: string; readonly underWay: string }, unwatched: number = UNWATCHED) {
		this.#messages = messages;
		this.#unwatched = unwatched;
	}

	/**
	 * The state of the last run. A command that looks at it keeps the run going.
	 *
	 * @throws ServiceError `not_found` when there was none
	 */
	get state(): RunState<Progress> {
		if (this.#state === undefined) throw new ServiceError("not_found", this.#messages.none);
		this.#watch?.refresh();
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
	 * @param work gets a signal that ends it
	 * @throws ServiceError `failed_precondition` while the last run is under way
	 */
	start(
		progress: Progress,
		work: (onProgress: (progress: Progress) => void, signal: AbortSignal) => Promise<void>,
	): void {
		if (this.#state?.running) throw this.underWay;
		const ended = new AbortController();
		const gone = new ServiceError("unavailable", "The command that started the run has gone");
		this.#watch = setTimeout(() => ended.abort(gone), this.#unwatched).unref();
		let last = progress;
		const show = (running: boolean, error?: unknown) => {
			this.#state = { progress: last, running, error };
			if (running) return;
			clearTimeout(this.#watch);
			this.#watch = undefined;
		};
		show(true);
		const running = work((now) => {
			last = now;
			show(true);
		}, ended.signal);
		running.then(
			() => show(false),
			(error: unknown) => show(false, error),
		);
	}
}
