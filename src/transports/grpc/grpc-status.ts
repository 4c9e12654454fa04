import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { Metadata } from "@grpc/grpc-js";
import { toConnectError } from "../../rpc/rpc-errors.ts";

/** Returns an error in the form that grpc-js sends: code, message, and the details in `grpc-status-details-bin`. */
export function grpcStatus(failure: unknown) {
	const error = toConnectError(failure);
	const trailer = setTrailerStatus(new Headers(), error);
	const metadata = new Metadata();
	const details = trailer.get("grpc-status-details-bin");
	if (details !== null) metadata.set("grpc-status-details-bin", Buffer.from(details, "base64"));
	return { name: error.name, message: error.rawMessage, code: Number(error.code), details: error.rawMessage, metadata };
}
