import { inspect, styleText } from "node:util";
import type { LineFormat } from "./log-output.ts";

/** Formats of the log. `auto` means `pretty` on a terminal and `json` elsewhere. */
export const logFormats = ["auto", "json", "pretty"] as const;
export type LogFormat = (typeof logFormats)[number];

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
