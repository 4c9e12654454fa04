/** Kinds of failure that a request can meet. Each transport maps them to its own statuses in one place. */
export type ErrorKind =
	| "invalid_record"
	| "invalid_argument"
	| "unauthenticated"
	| "permission_denied"
	| "not_found"
	| "out_of_range"
	| "too_large"
	| "unsupported_media_type"
	| "data_loss"
	/** A fault of the service on this one request: trying again does not help. */
	| "internal"
	| "unavailable";

/** A rule of the record that a request breaks, in the vocabulary of pydantic's error types. */
export interface Violation {
	/** Members and array indexes that lead from the record to the place; empty for the record itself. */
	readonly path: readonly (string | number)[];
	/** Name of the broken rule, such as `missing` or `greater_than`. */
	readonly type: string;
	/** What is wrong, for a person. Holds no part of a secret. */
	readonly message: string;
	/** Values that the message speaks of. */
	readonly context?: Readonly<Record<string, unknown>> | undefined;
	/** The offending value, only where it is small and cannot be a secret. */
	readonly input?: string | number | bigint | boolean | null | undefined;
}

/** The one error type of the service. `message` is shown to the client and holds no secret. */
export class ServiceError extends Error {
	override readonly name = "ServiceError";
	readonly kind: ErrorKind;
	/** Broken rules, for `invalid_record`. */
	readonly violations: readonly Violation[];
	/** Conversation that the request is about, where that is known: for the log. */
	readonly conversationId: string | undefined;

	constructor(
		kind: ErrorKind,
		message: string,
		options: { violations?: readonly Violation[]; conversationId?: string | undefined; cause?: unknown } = {},
	) {
		super(message, options.cause === undefined ? undefined : { cause: options.cause });
		this.kind = kind;
		this.violations = options.violations ?? [];
		this.conversationId = options.conversationId;
	}
}
