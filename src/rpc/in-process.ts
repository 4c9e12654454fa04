import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { createRouterTransport, type Transport } from "@connectrpc/connect";
import type { Principal } from "../access/keys.ts";
import { toConnectError } from "./rpc-errors.ts";
import type { RpcMethod } from "./rpc-method.ts";

/** Returns a transport that calls unary methods in this process, for a caller. */
export function inProcessTransport(methods: readonly RpcMethod[], caller: Principal): Transport {
	return createRouterTransport((router) => {
		for (const rpc of methods) {
			if (rpc.kind !== "unary") continue;
			const { method, handle } = rpc;
			router.rpc(method, async (request, { signal }) => {
				try {
					return fromBinary(method.output, await handle(toBinary(method.input, request), caller, signal));
				} catch (error) {
					throw toConnectError(error);
				}
			});
		}
	});
}
