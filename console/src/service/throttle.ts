/** Least milliseconds between the end of a task and its next run. */
const INTERVAL = 1_000;
/** Part of the time that a task takes at most, so that many pages do not overload a service that is slow at it. */
const SHARE = 1 / 20;

/** Runs a task when asked: at once or, if it ran lately, a little later. Requests until then are one. */
export class Throttle {
	readonly #task: () => Promise<unknown>;
	#timer: ReturnType<typeof setTimeout> | undefined;
	#running = false;
	#again = false;
	#after = 0;
	#cancelled = 0;

	/** @param task run again after a failure */
	constructor(task: () => Promise<unknown>) {
		this.#task = task;
	}

	/** Asks for a run that begins after this call. */
	request(): void {
		if (this.#running) this.#again = true;
		else this.#timer ??= setTimeout(() => void this.#run(), Math.max(0, this.#after - Date.now()));
	}

	/** Forgets what was asked for. */
	cancel(): void {
		clearTimeout(this.#timer);
		this.#timer = undefined;
		this.#again = false;
		this.#cancelled++;
	}

	async #run(): Promise<void> {
		this.#timer = undefined;
		this.#running = true;
		const started = Date.now();
		const cancelled = this.#cancelled;
		const done = await this.#task().then(
			() => true,
			() => false,
		);
		const ended = Date.now();
		this.#after = ended + Math.max(INTERVAL, (ended - started) / SHARE);
		this.#running = false;
		if (!this.#again && (done || cancelled !== this.#cancelled)) return;
		this.#again = false;
		this.request();
	}
}
