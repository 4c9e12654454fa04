import { inspect, styleText } from "node:util";
import type { LineFormat } from "./log-output.ts";

/** Forms of the log: `auto` is `pretty` on a terminal and `json` elsewhere. */
export const logFormats = ["auto", "json", "pretty"] as const;
export type LogFormat = (typeof logFormats)[number];

/** Columns that a pretty line should have at most. */
const COLUMNS = 120;

/** Gives what makes a JSON line of the log have a form. */
export function lineFormat(format: LogFormat, isTerminal: boolean): LineFormat {
	return format === "pretty" || (format === "auto" && isTerminal) ? prettyLine : (line) => line;
}

const STYLES = { debug: "gray", info: "green", warn: "yellow", error: "red" } as const;

/**
 * A JSON line for a person: time (UTC), level, message and event, then the other fields. Control characters in values are
 * escaped. It has colors where standard output shows them and the environment does not forbid it (`NO_COLOR`).
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
