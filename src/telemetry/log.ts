import { type DestinationStream, pino } from "pino";
import { formatPath, ServiceError, type Violation } from "../errors.ts";

/** Levels from the most to the least talkative; `silent` writes nothing. */
export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

export type Transport = "http" | "connect" | "grpc-web" | "grpc";

/** A request, as the log names it. */
export interface RequestInfo {
	readonly transport: Transport;
	/** Method and path of a route, such as `POST /api/v1/webhooks/conversations`, or the path of an RPC. */
	readonly operation: string;
	/** Id that the caller gave the request, or the service. */
	readonly requestId?: string | undefined;
	/** Trace that the request belongs to. Undefined when no traces are made. */
	readonly traceId?: string | undefined;
	/** Name of the access key. Undefined when the request had no right one. */
	readonly caller?: string | undefined;
	/** Conversation that the request names. What an error names comes first. */
	readonly conversationId?: string | undefined;
}

/** The log of failed requests. Every transport reports each failed request here, once. */
export interface RequestLog {
	/**
	 * A request failed. For a refusal the line tells the kind, how often each rule was broken, and where. For an error
	 * that is not a {@link ServiceError} it tells the place in the program.
	 */
	requestFailed(request: RequestInfo, error: unknown): void;
}

/** An update or an event that cannot be read, by the sequence number of its log. */
export interface UnreadableEntry {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly error: Error;
}

/**
 * The events of the service. There is no way to log anything else: an event takes names, numbers and errors, and no
 * request body, header or key is ever written. So no filter has to find secrets afterwards.
 */
export interface Log extends RequestLog {
	/** The service starts, with its configuration as {@link import("../config.ts").describeConfig} gives it. */
	starting(configuration: Readonly<Record<string, string>>): void;
	/** A listener accepts requests at an address such as `127.0.0.1:8080`. */
	listening(listener: "http" | "grpc", address: string): void;
	/** A listener accepts connections from other machines in clear text. */
	cleartext(listener: "http" | "grpc", host: string): void;
	/** A listener has as many connections as it takes, and closes further ones. */
	connectionsFull(listener: "http" | "grpc", connections: number): void;
	/** A listener has taken over changed files of TLS. */
	certificatesTaken(listener: "http" | "grpc"): void;
	/** The service begins to stop, because of a signal such as `SIGTERM`. */
	stopping(signal: string): void;
	/** Everything accepted is on disk and the service is gone. */
	stopped(): void;
	/** The database could not be read or written. */
	storeFailed(error: unknown): void;
	/** A thread of the intake ended or did not start, or failed at a record. The error quotes no record. */
	intakeFailed(error: unknown): void;
	/** What is stored of an update cannot be read. */
	recordUnreadable(record: UnreadableEntry): void;
	/** What is stored of an event cannot be read. */
	eventUnreadable(event: UnreadableEntry): void;
	/** What events tell of a conversation's record breaks its rules, and was not applied. */
	statementsRefused(conversationId: string, violations: readonly Violation[]): void;
	/** The store's check fails from now on: the error. Or it succeeds again: undefined. */
	storeHealth(error: unknown): void;
	/** Metrics or traces cannot be sent to their receiver. */
	exportFailed(signal: "metrics" | "traces", error: Error): void;
	/** An unexpected error outside of requests. `where` names the part of the program. */
	unexpectedError(where: string, error: unknown): void;
}

/** Most places of broken rules in a line. */
const MAX_PLACES = 10;
/** Most characters of a place, and of an operation: a client can make both as long as it likes. */
const MAX_TEXT = 160;

/**
 * Makes the service's log: one JSON object a line, with `level` as a word and `time` in ISO 8601.
 *
 * @param destination where lines go; standard output when left out, written synchronously so that no line is lost
 */
export function createLogger(level: LogLevel, destination: DestinationStream = pino.destination(1)): Log {
	const logger = pino(
		{ level, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: (label) => ({ level: label }) } },
		destination,
	);
	return {
		starting: (configuration) => logger.info({ event: "starting", configuration }, "The service starts"),
		listening: (listener, address) => logger.info({ event: "listening", listener, address }, "Listening"),
		cleartext: (listener, host) =>
			logger.warn({ event: "cleartext", listener, host }, "Keys and records go over the network in clear text"),
		connectionsFull: (listener, connections) =>
			logger.warn({ event: "connections_full", listener, connections }, "Further connections are closed"),
		certificatesTaken: (listener) =>
			logger.info({ event: "certificates_taken", listener }, "Changed files of TLS are in use"),
		stopping: (signal) => logger.info({ event: "stopping", signal }, "The service stops"),
		stopped: () => logger.info({ event: "stopped" }, "The service has stopped"),
		storeFailed: (error) => logger.error({ event: "store_failed", error: describe(error, true) }, "The store failed"),
		intakeFailed: (error) =>
			logger.error({ event: "intake_failed", error: describe(error, true) }, "The intake failed"),
		recordUnreadable: (record) =>
			logger.error({ event: "record_unreadable", ...unreadableFields(record) }, "A stored record cannot be read"),
		eventUnreadable: (event) =>
			logger.error({ event: "event_unreadable", ...unreadableFields(event) }, "A stored event cannot be read"),
		statementsRefused: (conversationId, violations) =>
			logger.warn(
				{ event: "statements_refused", conversationId, ...brokenRules(violations, "record") },
				"Events tell what breaks the record's rules; that is not applied",
			),
		storeHealth: (error) => {
			if (error === undefined) logger.info({ event: "store_healthy" }, "The store works again");
			else logger.error({ event: "store_unhealthy", error: describe(error, true) }, "The store does not work");
		},
		requestFailed: (request, error) => {
			const fields = requestFields(request, error);
			if (!(error instanceof ServiceError)) {
				const line = { event: "request_failed", ...fields, error: describe(error, false) };
				logger.error(line, "A request failed unexpectedly");
				return;
			}
			const { kind, violations, cause } = error;
			const refusal = { event: "request_refused", ...fields, kind, ...brokenRules(violations, "body") };
			if (kind !== "internal" && kind !== "data_loss") logger.warn(refusal, "Refused a request");
			else
				logger.error({ ...refusal, ...(cause !== undefined && { error: describe(cause, false) }) }, "A request failed");
		},
		exportFailed: (signal, error) =>
			logger.warn({ event: "export_failed", signal, error: describe(error, true) }, "Metrics or traces cannot be sent"),
		unexpectedError: (where, error) =>
			logger.error({ event: "unexpected_error", where, error: describe(error, false) }, "An unexpected error"),
	};
}

function unreadableFields({ conversationId, sequence, error }: UnreadableEntry) {
	return { conversationId, sequence: String(sequence), error: describe(error, true) };
}

function requestFields(request: RequestInfo, error: unknown) {
	const { transport, operation, requestId, traceId, caller, conversationId } = request;
	const id = (error instanceof ServiceError ? error.conversationId : undefined) ?? conversationId;
	return {
		transport,
		operation: shorten(operation),
		...(requestId !== undefined && { requestId }),
		...(traceId !== undefined && { traceId }),
		...(caller !== undefined && { caller }),
		// What a client gave in place of a UUID may be anything.
		...(id !== undefined && /^[0-9a-fA-F-]{32,36}$/.test(id) && { conversationId: id }),
	};
}

/** How often each rule was broken, and the first places. A place holds names of members and no values. */
function brokenRules(violations: readonly Violation[], root: string) {
	if (violations.length === 0) return {};
	const reasons: Record<string, number> = {};
	for (const { type } of violations) reasons[type] = (reasons[type] ?? 0) + 1;
	const locs = violations.slice(0, MAX_PLACES).map(({ path, part = root }) => shorten(part + formatPath(path)));
	return { reasons, locs };
}

function shorten(text: string): string {
	return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

interface ErrorDescription {
	type: string;
	code?: string | number;
	message?: string;
	stack?: string[];
	cause?: ErrorDescription;
}

/**
 * Describes an error. The message goes in only for the store's errors, which name files. Those of JSON.parse and of
 * decoders quote the text that they refuse, which may be a secret.
 */
function describe(error: unknown, withMessage: boolean, depth = 0): ErrorDescription {
	if (!(error instanceof Error)) {
		return { type: typeof error };
	}
	const description: ErrorDescription = { type: error.name };
	if ("code" in error && (typeof error.code === "string" || typeof error.code === "number"))
		description.code = error.code;
	if (withMessage) description.message = error.message;
	description.stack = frames(error);
	if (error.cause !== undefined && depth < 3) description.cause = describe(error.cause, withMessage, depth + 1);
	return description;
}

/** Places in the source that an error passed, innermost first, without the message that a stack text begins with. */
function frames(error: Error): string[] {
	const stack = error.stack ?? "";
	const start = stack.indexOf(error.message);
	const rest = start === -1 ? stack : stack.slice(start + error.message.length);
	return rest.split("\n").flatMap((line) => /^ {4}at (.*:\d+:\d+\)?)$/.exec(line)?.[1] ?? []);
}
