import { type DestinationStream, pino } from "pino";
import { formatPath, ServiceError, type Violation } from "../errors.ts";
import { echoable } from "../userinfo.ts";
import type { EndedRequest, Transport } from "./ended-request.ts";

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
	/** Name of the access key. Undefined when the request had no valid key. */
	readonly caller?: string | undefined;
	/** Address and port of the client, for a request without a valid key. */
	readonly peer?: string | undefined;
	/** Conversation that the request names. The conversation of a {@link ServiceError} takes precedence. */
	readonly conversationId?: string | undefined;
}

/** A client's connection that was ended because the client violated the protocol or was too slow. */
interface FailedConnection {
	readonly listener: "http" | "grpc";
	/** Address and port of the client, such as `192.0.2.7:51234`. Undefined when they are no longer known. */
	readonly peer: string | undefined;
	/** Error code, such as `HPE_INVALID_METHOD`. */
	readonly code: string;
	/** Description of the error by the protocol's library. It quotes nothing that the client sent. */
	readonly reason?: string | undefined;
}

/** An update or an event that cannot be read, with its sequence number in its log. */
interface UnreadableEntry {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly error: Error;
}

/** The clock and the time of retention, in microseconds since the Unix epoch. */
export interface ClockDifference {
	readonly clock: bigint;
	readonly retentionTime: bigint;
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
	access_key_expires: ["warn", "An access key expires within a week"],
	commands_unreachable: ["warn", "Commands cannot reach the service, because its socket cannot be opened"],
	request_ended: ["debug", "A request has ended"],
	request_refused: ["warn", "Refused a request"],
	request_failed: ["error", "A request failed"],
	sender_clock_wrong: [
		"warn",
		"The events of a sender are wrong by a multiple of 15 minutes: set its time zone (SENDER_TIME_ZONES), or its clock",
	],
	refused_batch_accepted: ["warn", "A batch of events was refused, and answered with success because its body is kept"],
	refused_posts_retried: ["info", "Refused posts were tried again"],
	event_values_refused: ["warn", "Events contain values that break the record's rules; these values were not applied"],
	store_failed: ["error", "The store failed"],
	unclean_stop: ["warn", "The last stop of the service was not clean: sequence numbers are skipped"],
	reconciled: ["info", "What never arrived was fetched from an agent server"],
	reconcile_incomplete: ["warn", "An agent server could not be read to the end"],
	reconcile_failed: ["warn", "A conversation of an agent server could not be taken in"],
	search_rebuilt: ["info", "The index of search is to be written anew"],
	search_filled: ["info", "The index of search is filled from stored events and titles"],
	clock_doubted: ["warn", "The clock differs from the time that retention uses"],
	clock_trusted: ["info", "The clock agrees again with the time that retention uses"],
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
type Fields = Readonly<Record<string, unknown>>;

/** Where log lines are written. */
interface LogDestination extends DestinationStream {
	/** Sets the listener that is called with the number of dropped lines as soon as lines can be written again. */
	onDropped?(report: (lines: number) => void): void;
	/** Number of lines that were dropped since the start. */
	readonly dropped?: number;
}

/**
 * Creates the service's log: one JSON object per line, with `level` as a word and `time` in ISO 8601. Events that may
 * occur again and again have a limited number of lines, see {@link LineLimit}. Each method logs the event of its name, and
 * has a comment where {@link logEvents} does not say enough.
 *
 * @param linesPerWindow the limit of lines of each such event in ten seconds
 */
export function createLogger(level: LogLevel, destination: LogDestination, linesPerWindow?: number) {
	const logger = pino(
		{ level, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: (label) => ({ level: label }) } },
		destination,
	);
	const emit = (event: LogEvent, fields: Fields = {}): void => {
		const [ownLevel, message] = logEvents[event];
		logger[ownLevel]({ event, ...fields }, message);
	};
	const limit = new LineLimit<LineKind & { readonly event: LogEvent }>(
		({ event, ...rest }, count) => emit("lines_left_out", { of: event, ...rest, count }),
		linesPerWindow,
	);
	/** @param kind what the line is counted by, beside its event */
	const emitLimited = (event: LogEvent, fields: Fields, kind: LineKind = {}): void => {
		if (limit.admits({ event, ...kind })) emit(event, fields);
	};
	const failed = (event: LogEvent, error: unknown): void => emitLimited(event, { error: describe(error, true) });
	const unexpected = (where: string, error: unknown): void =>
		emit("unexpected_error", { where, error: describe(error, false) });
	const unreadable = (event: LogEvent, { conversationId, sequence, error }: UnreadableEntry): void =>
		emitLimited(event, { conversationId, sequence: String(sequence), error: describe(error, true) });
	destination.onDropped?.((lines) => emit("log_lines_dropped", { lines }));
	return {
		/** Number of lines that were dropped since the start. */
		get droppedLines() {
			return destination.dropped ?? 0;
		},
		/** The service starts. Secrets in the configuration are masked. */
		starting: (configuration: Readonly<Record<string, string>>) => emit("starting", { configuration }),
		listening: (listener: "http" | "grpc", address: string) => emit("listening", { listener, address }),
		cleartext: (listener: "http" | "grpc", host: string) => emit("cleartext", { listener, host }),
		connectionsFull: (listener: "http" | "grpc", connections: number) =>
			emit("connections_full", { listener, connections }),
		connectionFailed: ({ listener, peer, code, reason }: FailedConnection) =>
			emitLimited("connection_failed", { listener, code, reason, peer }, { listener, code }),
		certificatesTaken: (listener: "http" | "grpc") => emit("certificates_taken", { listener }),
		/** TLS files cannot be read or do not match. The error names the files and quotes nothing from them. */
		certificatesRefused: (listener: "http" | "grpc", error: unknown) =>
			emit("certificates_refused", { listener, error: describe(error, true) }),
		/** The service begins to stop, because of a signal such as `SIGTERM`. */
		stopping: (signal: string) => emit("stopping", { signal }),
		/** All accepted data is on disk and the service has stopped. Calls {@link Logger.sumUp} first. */
		stopped: () => {
			limit.endWindow();
			emit("stopped");
		},
		/** Writes at once how many lines were left out. */
		sumUp: () => limit.endWindow(),
		storeFailed: (error: unknown) => failed("store_failed", error),
		uncleanStop: () => emit("unclean_stop"),
		searchRebuilt: (caller: string) => emit("search_rebuilt", { caller }),
		/** Progress of filling the index of search: documents since the start, and the event up to which it comes. */
		searchFilled: (documents: number, through: bigint, newest: bigint, isComplete: boolean) =>
			emit("search_filled", { documents, through: String(through), newest: String(newest), isComplete }),
		/** The clock now differs greatly from the time of retention, or, if undefined, no longer does. */
		clockDoubtChanged: (difference: ClockDifference | undefined) => {
			if (difference === undefined) return emit("clock_trusted");
			const { clock, retentionTime } = difference;
			emit("clock_doubted", { clock: isoTime(clock), retentionTime: isoTime(retentionTime) });
		},
		/** An intake thread ended, did not start, or failed to process a record. The error quotes no record. */
		intakeFailed: (error: unknown) => failed("intake_failed", error),
		recordUnreadable: (record: UnreadableEntry) => unreadable("record_unreadable", record),
		eventUnreadable: (event: UnreadableEntry) => unreadable("event_unreadable", event),
		/** A caller has created an access key. The owner is empty if there is none. */
		accessKeyCreated: (
			{ name, scopes, owner }: { readonly name: string; readonly scopes: readonly string[]; readonly owner: string },
			caller: string,
		) => emit("access_key_created", { name, scopes, owner, caller }),
		accessKeyRevoked: (name: string, caller: string) => emit("access_key_revoked", { name, caller }),
		ownerAssigned: (owner: string, conversations: number, caller: string) =>
			emit("owner_assigned", { owner, count: conversations, caller }),
		reconciled: (
			agentServer: string,
			{ goneIds: _, ...progress }: object & { goneIds: unknown },
			seconds: number,
			error: unknown,
		) =>
			emit(error === undefined ? "reconciled" : "reconcile_incomplete", {
				agentServer,
				...progress,
				seconds,
				...(error === undefined ? {} : { error: describe(error, true) }),
			}),
		reconcileFailed: (conversationId: string, error: unknown) =>
			emitLimited("reconcile_failed", { conversationId, error: describe(error, true) }),
		/** A caller has erased a conversation, whose id has this SHA-256. */
		conversationErased: (digest: string, caller: string) => emit("conversation_erased", { digest, caller }),
		/** A caller has created or changed an endpoint, or its deliveries. The owner is empty if there is none. */
		endpointChanged: (name: string, owner: string, action: string, caller: string) =>
			emit("endpoint_changed", { name, owner, action, caller }),
		endpointDisabled: (name: string, owner: string, reason: string) =>
			emit("endpoint_disabled", { name, owner, reason }),
		/** A conversation was paused at its agent server for a budget. The owner of the budget is empty if there is none. */
		conversationPaused: (conversationId: string, budget: string, owner: string) =>
			emit("conversation_paused", { conversationId, budget, owner }),
		conversationNotPaused: (conversationId: string, budget: string, owner: string, reason: string) =>
			emitLimited("conversation_not_paused", { conversationId, budget, owner, reason }),
		accessKeyExpires: (name: string, expiresAt: Date) =>
			emit("access_key_expires", { name, expiresAt: expiresAt.toISOString() }),
		commandsUnreachable: (error: unknown) => emit("commands_unreachable", { error: describe(error, true) }),
		/** The events of a sender are wrong by a time in microseconds, because of its time zone or its clock. */
		senderClockWrong: (sender: string, skew: bigint) =>
			emit("sender_clock_wrong", { sender, minutes: Number(skew / 60_000_000n) }),
		/** Events would change a conversation's record so that it breaks the rules. The change was not applied. */
		eventValuesRefused: (conversationId: string, violations: readonly Violation[]) =>
			emitLimited("event_values_refused", { conversationId, ...brokenRules(violations, "record") }),
		refusedBatchAccepted: (caller: string, conversationId: string, violations: readonly Violation[]) =>
			emitLimited("refused_batch_accepted", { caller, conversationId, ...brokenRules(violations, "body") }, { caller }),
		refusedPostsRetried: (takenIn: number, stillRefused: number) =>
			emit("refused_posts_retried", { takenIn, stillRefused }),
		/** The store's health check has begun to fail with an error, or, if undefined, succeeds again. */
		storeHealthChanged: (error: unknown) => {
			if (error === undefined) emit("store_healthy");
			else emit("store_unhealthy", { error: describe(error, true) });
		},
		/**
		 * A request failed. Each transport calls this exactly once for each failed request. The line for a refusal has its
		 * kind, how often each rule was broken, and where. The line for any other error has its stack frames.
		 */
		requestFailed: (request: RequestInfo, error: unknown) => {
			const fields = requestFields(request, error);
			const { caller } = fields;
			if (error instanceof ServiceError && !isOwnFailure(error)) {
				const { kind, violations } = error;
				const why = violations.length === 0 ? { detail: shorten(error.message) } : brokenRules(violations, "body");
				emitLimited("request_refused", { ...fields, kind, ...why }, { kind, caller });
				return;
			}
			const kind = error instanceof ServiceError ? error.kind : undefined;
			const thrown = error instanceof ServiceError ? error.cause : error;
			const described = thrown === undefined ? undefined : describe(thrown, false);
			emitLimited("request_failed", { ...fields, kind, error: described }, { kind, caller });
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
		exportFailed: (signal: "metrics" | "traces", error: unknown) =>
			emit("export_failed", { signal, error: describe(error, true) }),
		/**
		 * Background work failed and will be retried. Logs an unexpected error, except for `unavailable`: the store logs
		 * that itself, by {@link Logger.storeFailed}.
		 */
		workFailed: (where: string, error: unknown) => {
			if (!(error instanceof ServiceError && error.kind === "unavailable")) unexpected(where, error);
		},
		/** An unexpected error outside of requests. `where` names the part of the program. */
		unexpectedError: unexpected,
	};
}

/**
 * The events that the service can log; it cannot log anything else. An event takes names, numbers and errors, and never
 * a request body, header or key. So no filter for secrets is needed.
 */
export type Logger = ReturnType<typeof createLogger>;

/** Returns whether the service, and not the client, caused a failure. */
function isOwnFailure({ kind }: ServiceError): boolean {
	return kind === "internal" || kind === "data_loss";
}

/** Formats microseconds since the Unix epoch in ISO 8601. */
function isoTime(microseconds: bigint): string {
	return new Date(Number(microseconds / 1000n)).toISOString();
}

/** Maximum number of paths of violations in a line. */
const MAX_PLACES = 10;
/**
 * Maximum number of characters of a path, an operation or a detail. A client controls the length of some of these
 * texts.
 */
const MAX_TEXT = 160;

/** Returns the fields of a log line about a request. */
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

/** Returns how often each rule was broken, and the first paths. A path holds names of members and no values. */
function brokenRules(violations: readonly Violation[], root: string) {
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

/**
 * Describes an error. Messages are included for some errors only, such as those of the store, which name files.
 * Messages of JSON.parse and of decoders quote their input, which may be a secret.
 */
function describe(error: unknown, withMessage: boolean, depth = 0): ErrorDescription {
	if (!(error instanceof Error)) {
		return { type: typeof error };
	}
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

/** Milliseconds of a window. */
const WINDOW = 10_000;
/** Default maximum number of lines of one kind in a window. */
const LINES = 10;

/** What lines have in common that are counted together. Only values from small sets, and none that a client chooses. */
type LineKind = Readonly<Record<string, string | undefined>>;

/**
 * Limits the lines of each kind to 10 in a window of 10 seconds, and counts those that are left out. The first line
 * starts a window.
 */
export class LineLimit<Kind extends LineKind> {
	readonly #report: (kind: Kind, leftOut: number) => void;
	readonly #limit: number;
	readonly #counted = new Map<string, { readonly kind: Kind; lines: number }>();
	#timer: NodeJS.Timeout | undefined;

	/** @param report called at the end of a window for each kind of which lines were left out, with their number */
	constructor(report: (kind: Kind, leftOut: number) => void, limit = LINES) {
		this.#report = report;
		this.#limit = limit;
	}

	/** Counts a line. Returns whether it is to be written. */
	admits(kind: Kind): boolean {
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
