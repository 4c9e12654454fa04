import { type DestinationStream, pino } from "pino";
import { formatPath, ServiceError, type Violation } from "../errors.ts";
import { echoable } from "../userinfo.ts";
import type { EndedRequest, Transport } from "./metrics.ts";

/** Levels, from the most to the least verbose. `silent` writes nothing. */
export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** A request as the log describes it. */
export interface RequestInfo {
	readonly transport: Transport;
	/** Method and path of a route, such as `POST /api/v1/webhooks/conversations`, or the path of an RPC. */
	readonly operation: string;
	/** Request id, chosen by the caller or by the service. */
	readonly requestId?: string | undefined;
	/** Id of the trace that the request belongs to. Undefined when tracing is off. */
	readonly traceId?: string | undefined;
	readonly caller?: string | undefined;
	/** Address and port of the client, for a request without a valid key. */
	readonly peer?: string | undefined;
	/** Conversation that the request names. The conversation of a {@link ServiceError} takes precedence. */
	readonly conversationId?: string | undefined;
}

/** All events of the log with their levels and messages, which `npm run docs` writes into `docs/monitoring.md`. */
export const logEvents = {
	starting: ["info", "The service is starting"],
	listening: ["info", "Listening"],
	cleartext: ["warn", "Keys and records go over the network in clear text"],
	connections_full: ["warn", "The listener has reached its limit of connections and closes further ones"],
	connection_failed: ["warn", "A connection was closed because its client broke the protocol or was too slow"],
	certificates_taken: ["info", "The changed TLS files are in use"],
	certificates_refused: ["error", "The changed TLS files cannot be used; the previous ones stay in use"],
	stopping: ["info", "The service is stopping"],
	stopped: ["info", "The service has stopped"],
	access_key_created: ["info", "An access key was created"],
	access_key_revoked: ["info", "An access key was revoked"],
	owner_assigned: ["info", "Conversations were given an owner"],
	conversation_erased: ["info", "A conversation was erased"],
	endpoint_changed: ["info", "An endpoint was created or changed"],
	endpoint_disabled: ["warn", "An endpoint was disabled: it is sent nothing until it is resumed"],
	conversation_paused: ["info", "A conversation was paused, because a budget is spent"],
	conversation_not_paused: ["warn", "A conversation could not be paused, although a budget is spent"],
	commands_unreachable: ["warn", "Commands cannot reach the service, because its socket cannot be opened"],
	request_ended: ["debug", "A request has ended"],
	request_refused: ["warn", "Refused a request"],
	request_failed: ["error", "A request failed"],
	sender_clock_wrong: [
		"warn",
		"A sender's events are wrong by a multiple of 15 minutes: set SENDER_TIME_ZONES, or its clock",
	],
	refused_batch_accepted: ["warn", "A batch of events was refused, and answered with success because its body is kept"],
	event_values_refused: ["warn", "Events contain values that break the record's rules; these values were not applied"],
	store_failed: ["error", "The store failed"],
	reconciled: ["info", "What never arrived was fetched from an agent server"],
	reconcile_incomplete: ["warn", "An agent server could not be read to the end"],
	reconcile_failed: ["warn", "A conversation of an agent server could not be taken in"],
	search_rebuilt: ["info", "The index of search is to be written anew"],
	store_unhealthy: ["error", "The check of the store fails"],
	store_healthy: ["info", "The check of the store succeeds again"],
	intake_failed: ["error", "The intake failed"],
	record_unreadable: ["error", "A stored record cannot be read"],
	event_unreadable: ["error", "A stored event cannot be read"],
	export_failed: ["warn", "Metrics or traces cannot be sent"],
	unexpected_error: ["error", "An unexpected error"],
	lines_left_out: ["warn", "Further lines of the same event were left out"],
	log_lines_dropped: ["error", "Log lines could not be written"],
} as const satisfies Readonly<Record<string, readonly ["debug" | "info" | "warn" | "error", string]>>;

type LogEvent = keyof typeof logEvents;

/**
 * Fields of a line: names, numbers and times, and never a request body, header or key. So no filter for secrets is needed.
 */
type Fields = Readonly<
	Record<
		string,
		string | number | bigint | boolean | undefined | readonly string[] | Readonly<Record<string, string | number>>
	>
>;

/** Events of which only some lines are written, see {@link LineLimit}, and the fields by which their lines are counted. */
const LIMITED: { readonly [Event in LogEvent]?: readonly string[] } = {
	connection_failed: ["listener", "code"],
	connections_full: ["listener"],
	request_refused: ["kind", "caller"],
	request_failed: ["kind", "caller"],
	refused_batch_accepted: ["caller"],
	event_values_refused: [],
	conversation_not_paused: [],
	reconcile_failed: [],
	store_failed: [],
	intake_failed: [],
	record_unreadable: [],
	event_unreadable: [],
};
/** Events of errors whose messages may quote what a client sent, such as those of JSON.parse and of decoders. */
const WITHOUT_MESSAGES: readonly LogEvent[] = ["request_failed", "unexpected_error"];

interface LogDestination extends DestinationStream {
	/** Sets the listener that is called with the number of dropped lines as soon as lines can be written again. */
	onDropped?(report: (lines: number) => void): void;
	/** Number of lines that were dropped since the start. */
	readonly dropped?: number;
}

/**
 * Creates the service's log: one JSON object per line, with `level` as a word and `time` in ISO 8601.
 *
 * @param linesPerWindow the limit of lines of each event in {@link LIMITED} in ten seconds
 */
export function createLogger(level: LogLevel, destination: LogDestination, linesPerWindow?: number) {
	const logger = pino(
		{ level, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: (label) => ({ level: label }) } },
		destination,
	);
	const write = (event: LogEvent, fields: object): void => {
		const [ownLevel, message] = logEvents[event];
		logger[ownLevel]({ event, ...fields }, message);
	};
	const limit = new LineLimit(({ event, ...kind }, count) => {
		write("lines_left_out", { of: event, ...kind, count });
	}, linesPerWindow);
	const emit = (event: LogEvent, fields: Fields = {}, error?: unknown): void => {
		const names = LIMITED[event];
		const kind = Object.fromEntries((names ?? []).map((name) => [name, fields[name]]));
		if (names !== undefined && !limit.admits({ event, ...kind })) return;
		const described = error === undefined ? {} : { error: describe(error, !WITHOUT_MESSAGES.includes(event)) };
		const shown = Object.entries(fields).map(([name, value]) => [
			name,
			typeof value === "bigint" ? String(value) : value,
		]);
		write(event, { ...Object.fromEntries(shown), ...described });
	};
	destination.onDropped?.((lines) => emit("log_lines_dropped", { lines }));
	return {
		/** Writes the line of an event, unless too many of its kind were written. */
		emit,
		/** Number of lines that were dropped since the start. */
		get droppedLines() {
			return destination.dropped ?? 0;
		},
		/** Writes at once how many lines were left out. */
		sumUp: () => limit.endWindow(),
		/**
		 * A request failed. Each transport calls this exactly once for each failed request. The line for a refusal has its
		 * kind, how often each rule was broken, and where. The line for any other error has its stack frames.
		 */
		requestFailed: (request: RequestInfo, error: unknown) => {
			const fields = requestFields(request, error);
			if (!(error instanceof ServiceError)) return emit("request_failed", fields, error);
			const { kind, violations, message, cause } = error;
			// The service, and not the client, caused it.
			if (kind === "internal" || kind === "data_loss") return emit("request_failed", { ...fields, kind }, cause);
			const why = violations.length === 0 ? { detail: shorten(message) } : brokenRules(violations, "body");
			emit("request_refused", { ...fields, kind, ...why });
		},
		/**
		 * A request has ended, with success or not. At the level `debug`, because there is a line for each request.
		 *
		 * @param describeRequest called only if the line is written
		 */
		requestEnded: (describeRequest: () => RequestInfo, { status, failure, seconds, bytes }: EndedRequest) => {
			// For most services this level is off, and to describe a request takes longer than to find that out.
			if (!logger.isLevelEnabled(logEvents.request_ended[0])) return;
			emit("request_ended", {
				...requestFields(describeRequest(), undefined),
				status,
				failure,
				seconds: Number(seconds.toFixed(6)),
				bytes,
			});
		},
		/**
		 * Background work failed and will be retried. Logs an unexpected error, except for `unavailable`: the store logs
		 * that itself.
		 */
		workFailed: (where: string, error: unknown) => {
			if (!(error instanceof ServiceError && error.kind === "unavailable")) emit("unexpected_error", { where }, error);
		},
	};
}

/** The log of the service. It takes the events of {@link logEvents} only. */
export type Logger = ReturnType<typeof createLogger>;

export type EventLog = Pick<Logger, "emit">;

const MAX_PLACES = 10;
/**
 * Maximum number of characters of a path, an operation or a detail. A client controls the length of some of these
 * texts.
 */
const MAX_TEXT = 160;

function requestFields(request: RequestInfo, error: unknown) {
	const { transport, operation, requestId, traceId, peer, conversationId } = request;
	const serviceError = error instanceof ServiceError ? error : undefined;
	const id = serviceError?.conversationId ?? conversationId;
	const caller = request.caller ?? serviceError?.caller;
	return {
		transport,
		operation: shorten(operation),
		caller,
		// The address finds a sender that no name identifies.
		peer: caller === undefined ? peer : undefined,
		requestId,
		traceId,
		// The client may have sent anything in place of a UUID.
		conversationId: id !== undefined && /^[0-9a-fA-F-]{32,36}$/.test(id) ? id : undefined,
	};
}

/**
 * Returns how often each rule was broken, and the first paths. A path holds names of members and no values.
 *
 * @param root where the paths begin
 */
export function brokenRules(violations: readonly Violation[], root: "body" | "record") {
	const reasons: Record<string, number> = {};
	for (const { type } of violations) reasons[type] = (reasons[type] ?? 0) + 1;
	const locs = violations.slice(0, MAX_PLACES).map(({ path, part = root }) => shorten(part + formatPath(path)));
	return { reasons, locs };
}

/** Returns the beginning of a text that a client may have chosen, without passwords and tokens in URLs. */
function shorten(whole: string): string {
	const text = echoable(whole);
	return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

interface ErrorDescription {
	type: string;
	code?: string | number;
	message?: string;
	cause?: ErrorDescription;
	/** `at <place> at <place>…`, innermost first. */
	stack?: string;
}

function describe(error: unknown, withMessage: boolean, depth = 0): ErrorDescription {
	if (!(error instanceof Error)) return { type: typeof error };
	const description: ErrorDescription = { type: error.name };
	if ("code" in error && (typeof error.code === "string" || typeof error.code === "number"))
		description.code = error.code;
	if (withMessage) description.message = error.message;
	if (error.cause !== undefined && depth < 3) description.cause = describe(error.cause, withMessage, depth + 1);
	description.stack = stackOf(error);
	return description;
}

/** URL of the program's folder, which the places in a stack begin with. */
const ROOT = new URL("../../", import.meta.url).href;

/**
 * Returns the stack of an error in one line, without the message with which its text begins, and without the frames of
 * Node.js itself.
 */
function stackOf(error: Error): string {
	const stack = error.stack ?? "";
	const start = stack.indexOf(error.message);
	const rest = start === -1 ? stack : stack.slice(start + error.message.length);
	const frames = rest.split("\n").flatMap((line) => /^ {4}(at .*:\d+:\d+\)?)$/.exec(line)?.[1] ?? []);
	return frames
		.filter((frame) => !/[ (]node:/.test(frame))
		.join(" ")
		.replaceAll(ROOT, "");
}

const WINDOW = 10_000;
/** Default maximum number of lines of one kind in a window. */
const LINES = 10;

/** What lines have in common that are counted together. Only values from small sets, and none that a client chooses. */
type LineKind = Readonly<Record<string, Fields[string]>>;

/**
 * Limits the lines of each kind to 10 in a window of 10 seconds, and counts those that are left out. The first line
 * starts a window.
 */
export class LineLimit {
	readonly #report: (kind: LineKind, leftOut: number) => void;
	readonly #limit: number;
	readonly #counted = new Map<string, { readonly kind: LineKind; lines: number }>();
	#timer: NodeJS.Timeout | undefined;

	/** @param report called at the end of a window for each kind of which lines were left out, with their number */
	constructor(report: (kind: LineKind, leftOut: number) => void, limit = LINES) {
		this.#report = report;
		this.#limit = limit;
	}

	/** Counts a line. Returns whether it is to be written. */
	admits(kind: LineKind): boolean {
		this.#timer ??= setTimeout(() => this.endWindow(), WINDOW).unref();
		const counted = this.#counted.getOrInsertComputed(JSON.stringify(kind), () => ({ kind, lines: 0 }));
		counted.lines += 1;
		return counted.lines <= this.#limit;
	}

	/** Ends the window at once, and reports what was left out in it. */
	endWindow(): void {
		clearTimeout(this.#timer);
		this.#timer = undefined;
		const ended = [...this.#counted.values()];
		this.#counted.clear();
		for (const { kind, lines } of ended) if (lines > this.#limit) this.#report(kind, lines - this.#limit);
	}
}
