/** Kinds of failure that a request can meet. Each transport maps them to its own statuses in one place. */
export const errorKinds = [
	"invalid_record",
	"invalid_argument",
	"unauthenticated",
	"permission_denied",
	"not_found",
	"method_not_allowed",
	"out_of_range",
	"too_large",
	/** The key's or certificate's holder makes more requests than it may. */
	"rate_limited",
	"unsupported_media_type",
	"data_loss",
	/** An unexpected failure of the service on this one request. The same request would fail again. */
	"internal",
	/** The service cannot do its work now. The same request may succeed later. */
	"unavailable",
] as const;
export type ErrorKind = (typeof errorKinds)[number];

/** After how many seconds a sender may try again, for kinds of failure that pass. */
export const RETRY_AFTER: Readonly<Partial<Record<ErrorKind, number>>> = { unavailable: 5, rate_limited: 1 };

/** A rule of the record that a request breaks, in the vocabulary of pydantic's error types. */
export interface Violation {
	/**
	 * Members and array indexes that lead from the record, or from the batch of events, to the place; empty for itself. In
	 * the URL the name of a segment.
	 */
	readonly path: readonly (string | number)[];
	/** Part of the request that the place is in: the body unless it says otherwise, or the path of the URL. */
	readonly part?: "body" | "path";
	/** Name of the broken rule, such as `missing` or `greater_than`. */
	readonly type: string;
	/** What is wrong, for a person. Holds no part of a secret. */
	readonly message: string;
	/** Values that the message mentions. */
	readonly context?: Readonly<Record<string, unknown>> | undefined;
	/** The offending value, only where it is small and cannot be a secret. */
	readonly input?: string | number | bigint | boolean | null | undefined;
}

interface Details {
	readonly violations?: readonly Violation[];
	readonly conversationId?: string | undefined;
	readonly field?: string | undefined;
	readonly caller?: string | undefined;
	readonly cause?: unknown;
}

/** The one error type of the service. `message` is shown to the client and holds no secret. */
export class ServiceError extends Error {
	override readonly name = "ServiceError";
	readonly kind: ErrorKind;
	/** Broken rules, for `invalid_record`. */
	readonly violations: readonly Violation[];
	/** Conversation that the request is about, for the log. Undefined when it is not known. */
	readonly conversationId: string | undefined;
	/** Field of an RPC's request from which the paths of the violations lead. Undefined when there is no such request. */
	readonly field: string | undefined;
	/** Name of the key or certificate that the gate has refused, for the log. Undefined for one that is not known. */
	readonly caller: string | undefined;

	constructor(kind: ErrorKind, message: string, { violations, conversationId, field, caller, cause }: Details = {}) {
		super(message, cause === undefined ? undefined : { cause });
		this.kind = kind;
		this.violations = violations ?? [];
		this.conversationId = conversationId;
		this.field = field;
		this.caller = caller;
	}

	/** The same error, and what else is known of it. */
	with(details: Pick<Details, "conversationId" | "field">): ServiceError {
		const { kind, message, violations, conversationId, field, caller, cause } = this;
		return new ServiceError(kind, message, { violations, conversationId, field, caller, cause, ...details });
	}
}

/** Whether an error says that what is stored cannot be read. */
export function isDataLoss(error: unknown): error is ServiceError {
	return error instanceof ServiceError && error.kind === "data_loss";
}

/** The error with the conversation that the request is about, if it is a ServiceError that names none. */
export function withConversation(error: unknown, conversationId: string | undefined): unknown {
	if (!(error instanceof ServiceError) || error.conversationId !== undefined) return error;
	return error.with({ conversationId });
}

/** A place in a record's JSON form as text: `.available_models[0].model_id`; empty for the record itself. */
export function formatPath(path: readonly (string | number)[]): string {
	return path
		.map((token) => {
			if (typeof token === "number") return `[${token}]`;
			return /^[A-Za-z_]\w*$/.test(token) ? `.${token}` : `[${JSON.stringify(token)}]`;
		})
		.join("");
}
