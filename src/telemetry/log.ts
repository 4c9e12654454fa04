import { type DestinationStream, pino } from "pino";
import { ServiceError, type Violation } from "../errors.ts";
import { brokenRules, describe, type RequestInfo, refusalDetails, requestFields, shortly } from "./log-fields.ts";
import { type Occurrence, type RepeatOptions, Repeats } from "./repeats.ts";

/** Levels from the most to the least talkative; `silent` writes nothing. */
export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** A connection of a client that broke the rules of its protocol, or took too long. */
export interface FailedConnection {
	readonly listener: "http" | "grpc";
	/** Address and port of the client, such as `192.0.2.7:51234`. Undefined when they are not known any longer. */
	readonly peer: string | undefined;
	/** Code of the failure, such as `HPE_INVALID_METHOD`. */
	readonly code: string;
	/** What is wrong, in words of the protocol's library that quote nothing of what was sent. */
	readonly reason?: string | undefined;
}

/** An update or an event that cannot be read, by the sequence number of its log. */
export interface UnreadableEntry {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly error: Error;
}

/** What a start could not use of the store's write-ahead log. */
export interface LogLoss {
	readonly frames: number;
	/** Whether it was committed for certain. */
	readonly wasCommitted: boolean;
	/** How many sequences are left out. */
	readonly skipped: bigint;
}

/** The clock and the time of retention, in microseconds since the Unix epoch. */
export interface ClockDifference {
	readonly clock: bigint;
	readonly retentionTime: bigint;
}

/** Every event that there is, with its level and its message. `docs/operations.md` has a row for each. */
export const logEvents = {
	starting: ["info", "The service starts"],
	listening: ["info", "Listening"],
	cleartext: ["warn", "Keys and records go over the network in clear text"],
	connections_full: ["warn", "Further connections are closed"],
	connection_failed: ["warn", "A connection was ended because of what its client did"],
	connections_failed: ["warn", "More connections were ended for the same cause"],
	certificates_taken: ["info", "Changed files of TLS are in use"],
	certificates_refused: ["error", "The files of TLS cannot be used; the former ones stay in use"],
	stopping: ["info", "The service stops"],
	stopped: ["info", "The service has stopped"],
	request_refused: ["warn", "Refused a request"],
	requests_refused: ["warn", "Refused more requests for the same cause"],
	request_failed: ["error", "A request failed"],
	requests_failed: ["error", "More requests failed at the same place"],
	statements_refused: ["warn", "Events tell what breaks the record's rules; that is not applied"],
	more_statements_refused: ["warn", "More events tell what breaks the record's rules"],
	store_failed: ["error", "The store failed"],
	store_failures: ["error", "The store failed again for the same cause"],
	wal_end_lost: ["error", "The end of the write-ahead log is damaged: acknowledged data is lost"],
	wal_end_unused: ["warn", "The end of the write-ahead log is cut off, or the last commit in it is damaged"],
	clock_doubted: ["warn", "Retention does not go by the clock"],
	clock_trusted: ["info", "Retention goes by the clock again"],
	store_unhealthy: ["error", "The store does not work"],
	store_healthy: ["info", "The store works again"],
	intake_failed: ["error", "The intake failed"],
	intake_failures: ["error", "The intake failed again for the same cause"],
	record_unreadable: ["error", "A stored record cannot be read"],
	records_unreadable: ["error", "More stored records cannot be read for the same cause"],
	event_unreadable: ["error", "A stored event cannot be read"],
	events_unreadable: ["error", "More stored events cannot be read for the same cause"],
	export_failed: ["warn", "Metrics or traces cannot be sent"],
	unexpected_error: ["error", "An unexpected error"],
	log_lines_dropped: ["error", "Lines of the log could not be written"],
} as const satisfies Readonly<Record<string, readonly ["info" | "warn" | "error", string]>>;

type LogEvent = keyof typeof logEvents;
type Fields = Readonly<Record<string, unknown>>;

/** Where lines go. */
export interface LogDestination extends DestinationStream {
	/** Sets what is called with a number of lines that could not be written, when others can be written again. */
	onDropped?(report: (lines: number) => void): void;
	/** Lines that could not be written, since the start. */
	readonly dropped?: number;
}

/**
 * Makes the service's log: one JSON object a line, with `level` as a word and `time` in ISO 8601. Of events that are
 * repeated for the same cause the first one is told in full; {@link Repeats} sums up the others.
 */
export function createLogger(level: LogLevel, destination: LogDestination, repeatOptions: RepeatOptions = {}) {
	const logger = pino(
		{ level, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: (label) => ({ level: label }) } },
		destination,
	);
	const emit = (event: LogEvent, fields: Fields = {}): void => {
		const [ownLevel, message] = logEvents[event];
		logger[ownLevel]({ event, ...fields }, message);
	};
	const repeats = new Repeats<LogEvent>(({ event, cause, counts, samples, count, since }) => {
		const reasons = Object.keys(counts).length > 0 ? { reasons: counts } : {};
		emit(event, { ...cause, ...reasons, ...samples, count, since });
	}, repeatOptions);
	const emitOnce = (event: LogEvent, fields: Fields, occurrence: Occurrence<LogEvent>): void => {
		if (repeats.isFirst(occurrence)) emit(event, fields);
	};
	const failed = (event: LogEvent, sum: LogEvent, error: unknown): void =>
		emitOnce(event, { error: describe(error, true) }, { sum, cause: { error: shortly(error, true) }, group: {} });
	const unexpected = (where: string, error: unknown): void =>
		emit("unexpected_error", { where, error: describe(error, false) });
	const unreadable = (event: LogEvent, sum: LogEvent, { conversationId, sequence, error }: UnreadableEntry): void => {
		const samples = { conversationIds: [conversationId], sequences: [String(sequence)] };
		const occurrence = { sum, cause: { error: shortly(error, true) }, group: {}, samples };
		emitOnce(event, { conversationId, sequence: String(sequence), error: describe(error, true) }, occurrence);
	};
	destination.onDropped?.((lines) => emit("log_lines_dropped", { lines }));
	return {
		/** Lines that could not be written, since the start. */
		get droppedLines() {
			return destination.dropped ?? 0;
		},
		/** The service starts, with its configuration, secrets masked. */
		starting: (configuration: Readonly<Record<string, string>>) => emit("starting", { configuration }),
		/** A listener accepts requests at an address such as `127.0.0.1:8080`. */
		listening: (listener: "http" | "grpc", address: string) => emit("listening", { listener, address }),
		/** A listener accepts connections from other machines in clear text. */
		cleartext: (listener: "http" | "grpc", host: string) => emit("cleartext", { listener, host }),
		/** A listener has as many connections as it takes, and closes further ones. */
		connectionsFull: (listener: "http" | "grpc", connections: number) =>
			emit("connections_full", { listener, connections }),
		/** A client's connection was ended because of what it did: in TLS, in HTTP or in HTTP/2. */
		connectionFailed: ({ listener, peer, code, reason }: FailedConnection) => {
			const cause = { listener, code, reason };
			const occurrence = {
				sum: "connections_failed",
				cause,
				group: { listener },
				samples: { peers: peer === undefined ? [] : [peer] },
			} as const;
			emitOnce("connection_failed", { ...cause, peer }, occurrence);
		},
		/** A listener has taken over changed files of TLS. */
		certificatesTaken: (listener: "http" | "grpc") => emit("certificates_taken", { listener }),
		/** Files of TLS cannot be read or do not fit together. The error names files and quotes nothing of them. */
		certificatesRefused: (listener: "http" | "grpc", error: unknown) =>
			emit("certificates_refused", { listener, error: describe(error, true) }),
		/** The service begins to stop, because of a signal such as `SIGTERM`. */
		stopping: (signal: string) => emit("stopping", { signal }),
		/** Everything accepted is on disk and the service is gone. Writes what {@link sumUp} does before. */
		stopped: () => {
			repeats.sumUp();
			emit("stopped");
		},
		/** Writes the sums of repeated events that are not due yet. */
		sumUp: () => repeats.sumUp(),
		/** The database could not be read or written. */
		storeFailed: (error: unknown) => failed("store_failed", "store_failures", error),
		/** The end of the write-ahead log could not be used at the start. */
		walEndLost: ({ frames, wasCommitted, skipped }: LogLoss) =>
			emit(wasCommitted ? "wal_end_lost" : "wal_end_unused", { frames, skippedSequences: String(skipped) }),
		/** The clock is far from the time of retention from now on. Or it is near again: undefined. */
		clockDoubt: (difference: ClockDifference | undefined) => {
			if (difference === undefined) return emit("clock_trusted");
			const { clock, retentionTime } = difference;
			emit("clock_doubted", { clock: isoTime(clock), retentionTime: isoTime(retentionTime) });
		},
		/** A thread of the intake ended or did not start, or failed at a record. The error quotes no record. */
		intakeFailed: (error: unknown) => failed("intake_failed", "intake_failures", error),
		/** What is stored of an update cannot be read. */
		recordUnreadable: (record: UnreadableEntry) => unreadable("record_unreadable", "records_unreadable", record),
		/** What is stored of an event cannot be read. */
		eventUnreadable: (event: UnreadableEntry) => unreadable("event_unreadable", "events_unreadable", event),
		/** What events tell of a conversation's record breaks its rules, and was not applied. */
		statementsRefused: (conversationId: string, violations: readonly Violation[]) => {
			const { reasons, locs } = brokenRules(violations, "record");
			const samples = { conversationIds: [conversationId], locs };
			const occurrence = { sum: "more_statements_refused", cause: {}, group: {}, counts: reasons, samples } as const;
			emitOnce("statements_refused", { conversationId, reasons, locs }, occurrence);
		},
		/** The store's check fails from now on: the error. Or it succeeds again: undefined. */
		storeHealth: (error: unknown) => {
			if (error === undefined) emit("store_healthy");
			else emit("store_unhealthy", { error: describe(error, true) });
		},
		/**
		 * A request failed. Every transport reports each failed request here, once. For a refusal the line tells the kind, how
		 * often each rule was broken, and where. For an error that is not a {@link ServiceError} it tells the place in the
		 * program.
		 */
		requestFailed: (request: RequestInfo, error: unknown) => {
			const { who, which } = requestFields(request, error);
			const ids = which.conversationId === undefined ? [] : [which.conversationId];
			const { transport } = request;
			if (error instanceof ServiceError && !isOwnFailure(error)) {
				const { kind, violations } = error;
				const { reasons: counts, locs } = brokenRules(violations, "body");
				const details = refusalDetails(error);
				const why = violations.length === 0 ? { detail: details[0] } : { reasons: counts, locs };
				const cause = { ...who, kind };
				const samples = { conversationIds: ids, locs, details };
				const occurrence = { sum: "requests_refused", cause, group: { transport, kind }, counts, samples } as const;
				emitOnce("request_refused", { ...who, ...which, kind, ...why }, occurrence);
				return;
			}
			const told = error instanceof ServiceError ? { ...who, kind: error.kind } : who;
			const thrown = error instanceof ServiceError ? error.cause : error;
			const cause = { ...told, error: thrown === undefined ? undefined : shortly(thrown, false) };
			const samples = { conversationIds: ids };
			const occurrence = { sum: "requests_failed", cause, group: { transport }, samples } as const;
			const described = thrown === undefined ? undefined : describe(thrown, false);
			emitOnce("request_failed", { ...told, ...which, error: described }, occurrence);
		},
		/** Metrics or traces cannot be sent to their receiver. */
		exportFailed: (signal: "metrics" | "traces", error: unknown) =>
			emit("export_failed", { signal, error: describe(error, true) }),
		/**
		 * Work outside of requests failed that is done again later. Nothing is written when the store cannot be used
		 * (`unavailable`): the store tells that itself, by {@link Log.storeFailed}. Anything else is unexpected.
		 */
		workFailed: (where: string, error: unknown) => {
			if (!(error instanceof ServiceError && error.kind === "unavailable")) unexpected(where, error);
		},
		/** An unexpected error outside of requests. `where` names the part of the program. */
		unexpectedError: unexpected,
	};
}

/**
 * The events of the service. There is no way to log anything else: an event takes names, numbers and errors, and no
 * request body, header or key is ever written. So no filter has to find secrets afterwards.
 */
export type Log = ReturnType<typeof createLogger>;

/** Whether the service is to blame for a refusal. */
function isOwnFailure({ kind }: ServiceError): boolean {
	return kind === "internal" || kind === "data_loss";
}

/** A time in ISO 8601, from microseconds since the Unix epoch. */
function isoTime(microseconds: bigint): string {
	return new Date(Number(microseconds / 1000n)).toISOString();
}
