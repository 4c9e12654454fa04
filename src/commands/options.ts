/** The options of the commands, and how their values are read. */

export const OPTIONS = {
	help: { type: "boolean", short: "h" },
	version: { type: "boolean" },
	"after-update": { type: "string" },
	"after-event": { type: "string" },
	all: { type: "boolean" },
	scope: { type: "string" },
	owner: { type: "string" },
	expires: { type: "string" },
	sender: { type: "string", multiple: true },
	ids: { type: "string" },
	"agent-server": { type: "string" },
	"with-children": { type: "boolean" },
	"older-than": { type: "string" },
	status: { type: "string" },
	execute: { type: "boolean" },
} as const;
/** What stands for the value of an option in the usage; empty for an option without a value. */
export const OPTION_VALUES = {
	"after-update": "N",
	"after-event": "N",
	all: "",
	scope: "SCOPE+SCOPE",
	owner: "TEAM",
	expires: "TIME",
	sender: "NAME",
	ids: "ID,ID",
	"agent-server": "URL",
	"with-children": "",
	"older-than": "TIME",
	status: "STATUS",
	execute: "",
} as const;
export type OptionName = keyof typeof OPTION_VALUES;
/** Values of the options that were given. */
export type Values = Readonly<
	Partial<Record<Exclude<OptionName, Flag | "sender">, string> & Record<Flag, boolean> & { readonly sender: string[] }>
>;
/** Names of the options without a value. */
type Flag = "all" | "with-children" | "execute";

export const optionNames = Object.keys(OPTION_VALUES).filter((name): name is OptionName => name in OPTION_VALUES);

/** The error for invalid arguments. */
export class UsageError extends Error {}

/** @throws UsageError when the value is not a sequence */
export function sequenceOption(options: Values, name: "after-update" | "after-event"): bigint | undefined {
	const value = options[name];
	if (value === undefined) return undefined;
	if (!/^\d{1,18}$/.test(value)) throw new UsageError(`--${name} must be a sequence, which is a number from 0 on`);
	return BigInt(value);
}

/** Milliseconds of the units of durations. */
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/**
 * Returns the milliseconds of a duration.
 *
 * @throws UsageError when the value is not one
 */
export function durationOption(name: string, value: string): number {
	const [, count, unit = ""] = /^(\d{1,5})([mhdw])$/.exec(value) ?? [];
	if (count === undefined) throw new UsageError(`--${name} must be a duration such as 90d, 12h or 30m`);
	return Number(count) * (UNITS[unit] ?? 0);
}

/**
 * Returns the time that `--expires` names: after a duration from now, or at a date or a time in ISO 8601.
 *
 * @throws UsageError when the value is neither
 */
export function expiryOption(value: string | undefined): Date | undefined {
	if (value === undefined) return undefined;
	const [, count, unit = ""] = /^(\d{1,5})([mhdw])$/.exec(value) ?? [];
	const isDate = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d))?$/.test(value);
	const time = count === undefined ? Date.parse(isDate ? value : "") : Date.now() + Number(count) * (UNITS[unit] ?? 0);
	if (Number.isNaN(time))
		throw new UsageError("--expires must be such as 90d, 12h or 30m, or a date or time such as 2030-01-31T12:00Z");
	return new Date(time);
}
