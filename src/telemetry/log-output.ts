import { writeSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

/** Maximum number of bytes of lines that wait to be written. */
const MAX_WAITING_BYTES = 1024 * 1024;
/** Milliseconds between a failed write and the next attempt. */
const RETRY_INTERVAL = 100;
/** Milliseconds between two attempts at the end of the process. */
const FINAL_RETRY_INTERVAL = 10;

/** Converts a JSON line to the line that is written. Both end with a line feed. */
export type LineFormat = (line: string) => string;

/**
 * Writes lines to a file descriptor. Each line is written at once if that is possible, so that it is not lost when the
 * process ends abruptly.
 *
 * A failed write, for example because the disk is full or nobody reads the pipe, never blocks the caller. Up to 1 MiB
 * of lines wait and are written as soon as that is possible. Further lines are dropped and counted. A line that was
 * written in part is always completed first.
 */
export class LogOutput {
	readonly #fd: number;
	readonly #format: LineFormat;
	#waiting: Buffer[] = [];
	#waitingBytes = 0;
	/** Number of dropped lines that have not been reported yet. */
	#dropped = 0;
	#droppedReported = 0;
	#retry: NodeJS.Timeout | undefined;
	#report: (lines: number) => void = () => undefined;

	/**
	 * @param fd a descriptor whose writes return at once. A full pipe or socket must fail with EAGAIN. For standard
	 *   output, Node.js ensures this when `process.stdout` is first used
	 */
	constructor(fd: number, format: LineFormat) {
		this.#fd = fd;
		this.#format = format;
	}

	/** Writes a line, keeps it until it can be written, or drops it. Never throws and never waits. */
	write(line: string): void {
		const bytes = Buffer.from(this.#format(line));
		// After the first dropped line all lines are dropped, so that the report takes the place of the missing lines.
		if (this.#dropped > 0 || this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) {
			this.#dropped += 1;
		} else {
			this.#waiting.push(bytes);
			this.#waitingBytes += bytes.length;
		}
		if (this.#retry === undefined) this.#flush();
	}

	/** Number of lines that were dropped since the start. */
	get dropped(): number {
		return this.#droppedReported + this.#dropped;
	}

	/** Sets the listener that is called with the number of dropped lines as soon as lines can be written again. */
	onDropped(report: (lines: number) => void): void {
		this.#report = report;
	}

	/** Resolves when no line waits, or after `timeout` milliseconds. */
	async end(timeout: number): Promise<void> {
		const until = performance.now() + timeout;
		while (this.#waitingBytes > 0 && performance.now() < until) {
			await delay(FINAL_RETRY_INTERVAL);
			this.#flush();
		}
	}

	#flush(): void {
		clearTimeout(this.#retry);
		this.#retry = undefined;
		let rest = Buffer.concat(this.#waiting);
		try {
			while (rest.length > 0) rest = rest.subarray(writeSync(this.#fd, rest));
		} catch {
			this.#retry = setTimeout(() => this.#flush(), RETRY_INTERVAL).unref();
		}
		this.#waiting = rest.length > 0 ? [rest] : [];
		this.#waitingBytes = rest.length;
		if (rest.length > 0 || this.#dropped === 0) return;
		const dropped = this.#dropped;
		this.#droppedReported += dropped;
		this.#dropped = 0;
		this.#report(dropped);
	}
}
