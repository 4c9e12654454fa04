import { type DestinationStream, pino } from "pino";
import type { ErrorKind, ServiceError } from "../errors.ts";

/** Levels from the most to the least talkative; `silent` writes nothing. */
export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** A way by which requests come in. */
export type Transport = "http" | "connect" | "grpc";

/**
 * The events of the service. There is no way to log anything else: an event takes names, numbers and errors, and no
 * request body, header or key is ever written. Nothing is filtered by guessing at names afterwards.
 */
export interface Log {
	/** The service starts, with its configuration as {@link import("../config.ts").describeConfig} gives it. */
	starting(configuration: Readonly<Record<string, string>>): void;
	/** A listener accepts requests at an address such as `127.0.0.1:8080`. */
	listening(listener: "http" | "grpc", address: string): void;
	/** The service begins to stop, because of a signal such as `SIGTERM`. */
	stopping(signal: string): void;
	/** Everything accepted is on disk and the service is gone. */
	stopped(): void;
	/** The database could not be read or written. */
	storeFailed(error: unknown): void;
	/** A request was turned down: the kind of failure, and how often each rule was broken. */
	requestRefused(transport: Transport, error: ServiceError): void;
	/** An error that nobody foresaw. `where` names the part of the program. */
	unexpectedError(where: string, error: unknown): void;
}

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
		stopping: (signal) => logger.info({ event: "stopping", signal }, "The service stops"),
		stopped: () => logger.info({ event: "stopped" }, "The service has stopped"),
		storeFailed: (error) => logger.error({ event: "store_failed", error: describe(error, true) }, "The store failed"),
		requestRefused: (transport, error) => {
			const kind: ErrorKind = error.kind;
			logger.warn({ event: "request_refused", transport, kind, reasons: countReasons(error) }, "Refused a request");
		},
		unexpectedError: (where, error) =>
			logger.error({ event: "unexpected_error", where, error: describe(error, false) }, "An unexpected error"),
	};
}

function countReasons(error: ServiceError): Record<string, number> {
	const counts: Record<string, number> = {};
	for (const { type } of error.violations) {
		counts[type] = (counts[type] ?? 0) + 1;
	}
	return counts;
}

interface ErrorDescription {
	type: string;
	code?: string | number;
	message?: string;
	stack?: string[];
	cause?: ErrorDescription;
}

/**
 * Describes an error. The message goes in only for the store's errors, which speak of files: those of JSON.parse and
 * of decoders quote the text they stumbled over, which may be a secret.
 */
function describe(error: unknown, withMessage: boolean, depth = 0): ErrorDescription {
	if (!(error instanceof Error)) {
		return { type: typeof error };
	}
	const description: ErrorDescription = { type: error.name };
	if ("code" in error && (typeof error.code === "string" || typeof error.code === "number")) {
		description.code = error.code;
	}
	if (withMessage) {
		description.message = error.message;
	}
	description.stack = frames(error);
	if (error.cause !== undefined && depth < 3) {
		description.cause = describe(error.cause, withMessage, depth + 1);
	}
	return description;
}

/** Places in the source that an error passed, innermost first, without the message that a stack text begins with. */
function frames(error: Error): string[] {
	const stack = error.stack ?? "";
	const start = stack.indexOf(error.message);
	const rest = start === -1 ? stack : stack.slice(start + error.message.length);
	return rest.split("\n").flatMap((line) => /^ {4}at (.*:\d+:\d+\)?)$/.exec(line)?.[1] ?? []);
}
