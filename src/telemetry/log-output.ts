import { setTimeout as delay } from "node:timers/promises";
import { inspect, styleText } from "node:util";
import sonicBoom from "sonic-boom";

/** Formats of the log. `auto` means `pretty` on a terminal and `json` elsewhere. */
export const logFormats = ["auto", "json", "pretty"] as const;
export type LogFormat = (typeof logFormats)[number];

const MAX_WAITING_BYTES = 1024 * 1024;
/** Milliseconds between a failed write and the next attempt. */
const RETRY_INTERVAL = 50;

/** Converts a JSON line to the line that is written. Both end with a line feed. */
type LineFormat = (line: string) => string;

/**
 * Writes lines to a file descriptor. Each line is written at once if that is possible, so that it is not lost when the
 * process ends abruptly.
 *
 * A failed write, for example because the disk is full or nobody reads the pipe, never blocks the caller. Up to 1 MiB
 * of lines wait and are written as soon as that is possible. Further lines are dropped and counted. A line that was
 * written in part is always completed first.
 */
export class LogOutput {
	readonly #destination: sonicBoom.SonicBoom;
	readonly #format: LineFormat;
	#dropped = 0;
	#reported = 0;
	#retry: NodeJS.Timeout | undefined;

	/**
	 * @param fd a descriptor whose writes return at once. A full pipe or socket must fail with EAGAIN. For standard
	 *   output, Node.js ensures this when `process.stdout` is first used
	 */
	constructor(fd: number, format: LineFormat) {
		// pino.destination() would discard all lines after the first EPIPE, without an event for each.
		this.#destination = new sonicBoom.SonicBoom({
			fd,
			sync: true,
			maxLength: MAX_WAITING_BYTES,
			// With 0, flush() would do nothing, and a full buffer would never be written.
			minLength: 1,
			// A retry by the library would stop the thread for 100 ms.
			retryEAGAIN: () => false,
		});
		this.#format = format;
		this.#destination.on("drop", () => {
			this.#dropped += 1;
		});
		this.#destination.on("error", () => {
			this.#retry ??= setTimeout(() => this.#flush(), RETRY_INTERVAL).unref();
		});
	}

	/** Writes a line, keeps it until it can be written, or drops it. Never throws and never waits. */
	write(line: string): void {
		this.#destination.write(this.#format(line));
	}

	get dropped(): number {
		return this.#dropped;
	}

	/** Sets the listener that is called with the number of dropped lines as soon as lines can be written again. */
	onDropped(report: (lines: number) => void): void {
		this.#destination.on("drain", () => {
			const lines = this.#dropped - this.#reported;
			// The event may be about a write before the one that failed.
			if (lines === 0 || this.#retry !== undefined) return;
			this.#reported = this.#dropped;
			report(lines);
		});
	}

	/** Resolves when no line waits, or after `timeout` milliseconds. */
	async end(timeout: number): Promise<void> {
		const until = performance.now() + timeout;
		this.#flush();
		while (this.#retry !== undefined && performance.now() < until) await delay(Math.min(timeout, RETRY_INTERVAL));
	}

	#flush(): void {
		clearTimeout(this.#retry);
		this.#retry = undefined;
		this.#destination.flush();
	}
}

/** Preferred maximum width of a pretty line, in columns. */
const COLUMNS = 120;

/** Returns the function that converts a JSON line of the log to a format. */
export function lineFormat(format: LogFormat, isTerminal: boolean): LineFormat {
	return format === "pretty" || (format === "auto" && isTerminal) ? prettyLine : (line) => line;
}

const STYLES = { debug: "gray", info: "green", warn: "yellow", error: "red" } as const;

/**
 * Formats a JSON line for a person: time (UTC), level, message and event, then the other fields. Control characters in
 * values are escaped. The line is colored if standard output supports colors and the environment allows them
 * (`NO_COLOR`).
 */
function prettyLine(line: string): string {
	const parsed: Record<string, unknown> = JSON.parse(line);
	const { time, level, event, msg, pid: _pid, hostname: _hostname, ...fields } = parsed;
	const [, style] = Object.entries(STYLES).find(([name]) => name === level) ?? [];
	const shownLevel = String(level).toUpperCase().padEnd(5);
	const head = [
		String(time).slice(11),
		style === undefined ? shownLevel : styleText(style, shownLevel),
		String(msg),
		styleText("gray", `(${String(event)})`),
	];
	const shown = inspect(fields, { depth: null, breakLength: COLUMNS, maxArrayLength: null, maxStringLength: null });
	const tail = Object.keys(fields).length === 0 ? [] : [shown.replaceAll("\n", "\n  ")];
	return `${[...head, ...tail].join(" ")}\n`;
}
