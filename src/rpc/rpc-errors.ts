import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema } from "../../gen/google/rpc/error_details_pb.js";
import { type ErrorKind, formatPath, RETRY_AFTER_SECONDS, ServiceError, type Violation } from "../errors.ts";

/** Codes of the RPC protocols. They have the same numbers in gRPC and Connect. */
const CODES: Readonly<Record<ErrorKind, Code>> = {
	invalid_record: Code.InvalidArgument,
	invalid_argument: Code.InvalidArgument,
	unauthenticated: Code.Unauthenticated,
	permission_denied: Code.PermissionDenied,
	not_found: Code.NotFound,
	already_exists: Code.AlreadyExists,
	failed_precondition: Code.FailedPrecondition,
	method_not_allowed: Code.Unimplemented,
	out_of_range: Code.OutOfRange,
	too_large: Code.ResourceExhausted,
	rate_limited: Code.ResourceExhausted,
	unsupported_media_type: Code.InvalidArgument,
	data_loss: Code.DataLoss,
	internal: Code.Internal,
	unavailable: Code.Unavailable,
};

/** Returns the error that RPC clients receive. Of an unexpected error they learn only that it happened. */
export function toConnectError(error: unknown): ConnectError {
	if (error instanceof ConnectError) return error;
	if (!(error instanceof ServiceError)) return new ConnectError("internal error", Code.Internal);
	const connectError = new ConnectError(error.message, CODES[error.kind]);
	const retryAfter = RETRY_AFTER_SECONDS[error.kind];
	if (retryAfter !== undefined) connectError.metadata.set("Retry-After", String(retryAfter));
	if (error.violations.length > 0)
		connectError.details = [
			{
				desc: BadRequestSchema,
				value: create(BadRequestSchema, { fieldViolations: fieldViolations(error) }),
			},
		];
	return connectError;
}

/** Maximum bytes of violations in one response. They are sent in trailers, of which clients accept 8 KiB by default. */
const MAX_DETAIL_BYTES = 4096;

function fieldViolations({ violations, field: root }: ServiceError) {
	const listed = [];
	let bytes = 0;
	for (const { path, message, type } of violations) {
		const field = fieldPath(path, root);
		bytes += field.length + message.length + type.length;
		if (listed.length > 0 && bytes > MAX_DETAIL_BYTES) break;
		listed.push({ field, description: message, reason: type });
	}
	return listed;
}

/**
 * Returns the path of a violation from the request, such as `conversation.available_models[0].model_id`.
 *
 * @param field field of the request from which `path` leads
 */
export function fieldPath(path: Violation["path"], field = ""): string {
	return `${field}${formatPath(path)}`;
}
