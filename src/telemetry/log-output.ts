import { writeSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

/** Most bytes of lines that wait until they can be written. */
const MAX_WAITING_BYTES = 1024 * 1024;
/** Milliseconds after a failed write until the next try. */
const RETRY_INTERVAL = 100;
/** Milliseconds between two tries at the end of the process. */
const LAST_INTERVAL = 10;

/** Makes of a JSON line what is written in its place. Both end with a line feed. */
export type LineFormat = (line: string) => string;

/**
 * Writes lines to a file descriptor, each at once, so that a process that ends abruptly has written them.
 *
 * A disk that is full, a pipe that nobody reads, and any other failure of a write hold up nobody: up to 1 MiB of lines
 * wait and are written when that is possible again, and later ones are dropped and counted. A line is never written in
 * part and then left.
 */
export class LogOutput {
	readonly #fd: number;
	readonly #format: LineFormat;
	#waiting: Buffer[] = [];
	#waitingBytes = 0;
	/** Lines that were dropped and not reported. */
	#dropped = 0;
	#droppedBefore = 0;
	#retry: NodeJS.Timeout | undefined;
	#report: (lines: number) => void = () => undefined;

	/**
	 * @param fd a descriptor whose writes return at once. A full pipe or socket must give EAGAIN: Node.js sees to that for
	 *   standard output when `process.stdout` is first used
	 */
	constructor(fd: number, format: LineFormat) {
		this.#fd = fd;
		this.#format = format;
	}

	/** Writes a line, or keeps it until it can be written, or drops it. Never throws and never waits. */
	write(line: string): void {
		const bytes = Buffer.from(this.#format(line));
		// After the first dropped line all are, so that the report stands where the lines are missing.
		if (this.#dropped > 0 || this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) {
			this.#dropped += 1;
			return;
		}
		this.#waiting.push(bytes);
		this.#waitingBytes += bytes.length;
		if (this.#retry === undefined) this.#flush();
	}

	/** Lines that were dropped, since the start. */
	get dropped(): number {
		return this.#droppedBefore + this.#dropped;
	}

	/** Sets what is called with the number of dropped lines, each time when lines can be written again after that. */
	onDropped(report: (lines: number) => void): void {
		this.#report = report;
	}

	/** Resolves when no line waits, or when the time is over, in milliseconds. */
	async end(milliseconds: number): Promise<void> {
		const until = performance.now() + milliseconds;
		while (this.#waitingBytes > 0 && performance.now() < until) {
			await delay(LAST_INTERVAL);
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
		this.#droppedBefore += dropped;
		this.#dropped = 0;
		this.#report(dropped);
	}
}
