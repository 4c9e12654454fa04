import { echoable } from "./userinfo.ts";

/** How transports answer a kind of failure. */
interface FailureAnswer {
	readonly http: number;
	/** Code of gRPC and Connect (google.rpc.Code). */
	readonly rpc: number;
	/** Seconds after which a client may retry, for a failure that is temporary. */
	readonly retryAfter?: number;
}

/** Kinds of failure of a request. */
export const FAILURES = {
	invalid_record: { http: 422, rpc: 3 },
	invalid_argument: { http: 400, rpc: 3 },
	unauthenticated: { http: 401, rpc: 16 },
	permission_denied: { http: 403, rpc: 7 },
	not_found: { http: 404, rpc: 5 },
	already_exists: { http: 409, rpc: 6 },
	/** The state of what the request names does not allow it. */
	failed_precondition: { http: 412, rpc: 9 },
	method_not_allowed: { http: 405, rpc: 12 },
	out_of_range: { http: 410, rpc: 11 },
	too_large: { http: 413, rpc: 8 },
	/** The holder of the key or certificate exceeds its rate limit. */
	rate_limited: { http: 429, rpc: 8, retryAfter: 1 },
	unsupported_media_type: { http: 415, rpc: 3 },
	data_loss: { http: 500, rpc: 15 },
	/** An unexpected failure of the service on this one request. The same request would fail again. */
	internal: { http: 500, rpc: 13 },
	/** The service cannot do its work now. The same request may succeed later. */
	unavailable: { http: 503, rpc: 14, retryAfter: 5 },
} as const satisfies Record<string, FailureAnswer>;
export type ErrorKind = keyof typeof FAILURES;

/** A rule that a request breaks, in the vocabulary of pydantic's error types. */
export interface Violation {
	/**
	 * Member names and array indexes that lead from the record, or from the batch of events, to the offending value;
	 * empty for the whole record or batch. For the part `path`, the name of a URL segment.
	 */
	readonly path: readonly (string | number)[];
	/** Part of the request that holds the offending value. Defaults to `body`. */
	readonly part?: "body" | "path";
	/** Name of the broken rule, such as `missing` or `greater_than`. */
	readonly type: string;
	/** Description of the mistake for a person. Contains no part of a secret. */
	readonly message: string;
	/** Values that the message mentions. */
	readonly context?: Readonly<Record<string, unknown>> | undefined;
	/** The offending value; left out unless it is small and cannot be a secret. */
	readonly input?: string | number | bigint | boolean | null | undefined;
}

type Details = Partial<Pick<ServiceError, "violations" | "conversationId" | "field" | "caller" | "cause">>;

/**
 * The error type of the service. Its message and its violations are shown to the client and logged. They may quote what
 * the client sent: passwords and tokens in URLs are redacted here, see {@link echoable}.
 */
export class ServiceError extends Error {
	override readonly name = "ServiceError";
	readonly kind: ErrorKind;
	/** The broken rules, for `invalid_record`. */
	readonly violations: readonly Violation[];
	/** Conversation that the request is about, for the log. Undefined when it is not known. */
	readonly conversationId: string | undefined;
	/** Field of the RPC request at which the paths of the violations begin. Undefined when there is no such field. */
	readonly field: string | undefined;
	/** Name of the key or certificate that the gate rejected, for the log. Undefined when the gate does not know it. */
	readonly caller: string | undefined;

	constructor(kind: ErrorKind, message: string, { violations, conversationId, field, caller, cause }: Details = {}) {
		super(echoable(message), cause === undefined ? undefined : { cause });
		this.kind = kind;
		this.violations = violations?.map(echoableViolation) ?? [];
		this.conversationId = conversationId;
		this.field = field;
		this.caller = caller;
	}

	get answer(): FailureAnswer {
		return FAILURES[this.kind];
	}

	/** Returns a copy of the error with additional details. */
	with(details: Pick<Details, "conversationId" | "field">): ServiceError {
		const { kind, message, violations, conversationId, field, caller, cause } = this;
		return new ServiceError(kind, message, { violations, conversationId, field, caller, cause, ...details });
	}
}

function echoableViolation(violation: Violation): Violation {
	const { path, message, input } = violation;
	return {
		...violation,
		path: path.map((token) => (typeof token === "string" ? echoable(token) : token)),
		message: echoable(message),
		...(typeof input === "string" ? { input: echoable(input) } : {}),
	};
}

/** Returns the error for a field or parameter of a request, such as `max must not be negative`. */
export function invalid(field: string, problem: string): ServiceError {
	return new ServiceError("invalid_argument", `${field} ${problem}`);
}

/** Returns whether an error means that stored data cannot be read. */
export function isDataLoss(error: unknown): error is ServiceError {
	return error instanceof ServiceError && error.kind === "data_loss";
}

/** Adds the conversation that the request is about to an error, if it is a ServiceError that names none. */
export function withConversation(error: unknown, conversationId: string | undefined): unknown {
	if (!(error instanceof ServiceError) || error.conversationId !== undefined) return error;
	return error.with({ conversationId });
}

/** Formats the path of a {@link Violation} as text: `.available_models[0].model_id`; empty for the record itself. */
export function formatPath(path: readonly (string | number)[]): string {
	return path
		.map((token) => {
			if (typeof token === "number") return `[${token}]`;
			return /^[A-Za-z_]\w*$/.test(token) ? `.${token}` : `[${JSON.stringify(token)}]`;
		})
		.join("");
}

/** Signal that the sender of a request no longer waits for the response. An AbortSignal is one. */
export interface CallSignal extends Pick<AbortSignal, "aborted"> {
	/** When the sender stops waiting, in milliseconds since the Unix epoch. Undefined when unknown. */
	readonly deadline?: number | undefined;
}

/** The error for a request whose sender no longer waits for the response. */
export const SENDER_GONE = new ServiceError("unavailable", "the sender no longer waits for the response");

/** Returns whether the sender no longer waits for the response. Without a signal, it always waits. */
export function isSenderGone(signal: CallSignal | undefined): boolean {
	return signal !== undefined && (signal.aborted || isPast(signal.deadline));
}

/** Returns whether a deadline (milliseconds since the Unix epoch) has passed. Undefined is never past. */
export function isPast(deadline: number | undefined): boolean {
	return deadline !== undefined && deadline < Date.now();
}
