import type { DescMessage, JsonObject, JsonValue, MessageShape } from "@bufbuild/protobuf";
import type { Config } from "../config/config.ts";

/** What a command is, its options, and how their values are read. */

/** All options, as `parseArgs` takes them. `value` stands for the value of an option in the usage. */
export const OPTIONS = {
	help: { type: "boolean", short: "h" },
	version: { type: "boolean" },
	demo: { type: "boolean" },
	"after-update": { type: "string", value: "N" },
	"after-event": { type: "string", value: "N" },
	all: { type: "boolean" },
	scope: { type: "string", value: "SCOPE+SCOPE" },
	owner: { type: "string", value: "TEAM" },
	expires: { type: "string", value: "TIME" },
	sender: { type: "string", multiple: true, value: "NAME" },
	ids: { type: "string", value: "ID,ID" },
	"no-sender": { type: "boolean" },
	filter: { type: "string", value: "QUERY" },
	"agent-server": { type: "string", value: "URL" },
	"with-children": { type: "boolean" },
	"older-than": { type: "string", value: "TIME" },
	status: { type: "string", value: "STATUS" },
	execute: { type: "boolean" },
	print: { type: "boolean" },
	distribute: { type: "boolean" },
	url: { type: "string", value: "URL" },
	format: { type: "string", value: "FORMAT" },
	form: { type: "string", value: "FORM" },
	changes: { type: "string", value: "CHANGE,CHANGE" },
	include: { type: "string", value: "NAME,NAME" },
	from: { type: "string", value: "PLACE" },
	to: { type: "string", value: "N" },
} as const;

/** Name of an option of a command. The other two take the place of a command. */
type OptionName = Exclude<keyof typeof OPTIONS, "help" | "version">;

type ValueOf<Option> = Option extends { readonly multiple: true }
	? readonly string[]
	: Option extends { readonly type: "boolean" }
		? boolean
		: string;

export type Values = { readonly [Name in OptionName]?: ValueOf<(typeof OPTIONS)[Name]> | undefined };

export class UsageError extends Error {}

/** A command of the program. */
export interface Command {
	/** Names of the operands. The last one may be left out or repeated if its name ends in `…`. */
	readonly operands?: readonly string[];
	readonly options?: readonly OptionName[];
	readonly meaning: string;
	readonly run: (config: Config, operands: readonly string[], options: Values) => Promise<void> | void;
}

/** A command that calls one RPC. Its operands and options are the fields of the request with these names. */
export interface Call<Answer extends DescMessage> extends Omit<Command, "run"> {
	/** Options that must be given. */
	readonly needs?: readonly OptionName[];
	/** Returns further fields of the request, in its JSON form. `filter` is that of `--filter`. */
	readonly request?: (options: Values, filter: JsonValue | undefined) => JsonObject;
	/** Returns the lines that are printed. Default: one for each field of the answer. */
	readonly shown?: (
		answer: MessageShape<Answer>,
		operands: readonly string[],
		options: Values,
	) => string | readonly string[];
	/** Returns a sentence for standard error. */
	readonly note?: (answer: MessageShape<Answer>, operands: readonly string[]) => string;
}

/** The operand that stands for settings: fields of the request that have no option. */
export const SETTINGS = "SETTING=VALUE…";

/** Returns the sequence that an option names. */
export function sequenceOption(name: string, value: string): bigint {
	if (!/^\d{1,18}$/.test(value)) throw new UsageError(`--${name} must be a sequence, which is a number from 0 on`);
	return BigInt(value);
}

/** Milliseconds of the units of durations. */
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** Returns the milliseconds of a duration such as 90d; undefined when the text is not one. */
function millisecondsOf(text: string): number | undefined {
	const [, count, unit = ""] = /^(\d{1,5})([mhdw])$/.exec(text) ?? [];
	return count === undefined ? undefined : Number(count) * (UNITS[unit] ?? 0);
}

/** Returns the milliseconds of the duration that an option names. */
export function durationOption(name: string, value: string): number {
	const duration = millisecondsOf(value);
	if (duration === undefined) throw new UsageError(`--${name} must be a duration such as 90d, 12h or 30m`);
	return duration;
}

/** Returns the time that `--expires` names: after a duration from now, or at a date or a time in ISO 8601. */
export function expiryOption(value: string): Date {
	const duration = millisecondsOf(value);
	const isDate = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d))?$/.test(value);
	const time = duration === undefined ? Date.parse(isDate ? value : "") : Date.now() + duration;
	if (Number.isNaN(time))
		throw new UsageError("--expires must be such as 90d, 12h or 30m, or a date or time such as 2030-01-31T12:00Z");
	return new Date(time);
}
