import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata } from "@grpc/grpc-js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { toConnectError } from "../../rpc/rpc-errors.ts";

/**
 * Returns an error in the form that grpc-js sends: code, message, `retry-after` for a temporary error, and the details
 * in `grpc-status-details-bin`.
 */
export function grpcStatus(failure: unknown) {
	const { name, code, rawMessage: message, metadata: header, details } = toConnectError(failure);
	const metadata = new Metadata();
	const retryAfter = header.get("Retry-After");
	if (retryAfter !== null) metadata.set("retry-after", retryAfter);
	const packed = details.flatMap((one) => ("desc" in one ? anyPack(one.desc, create(one.desc, one.value)) : []));
	if (packed.length > 0) {
		const status = create(StatusSchema, { code, message, details: packed });
		metadata.set("grpc-status-details-bin", Buffer.from(toBinary(StatusSchema, status)));
	}
	return { name, message, code: Number(code), details: message, metadata };
}
