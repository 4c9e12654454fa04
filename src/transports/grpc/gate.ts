import { type Metadata, ServerInterceptingCall, type ServerInterceptor } from "@grpc/grpc-js";
import { type Gate, KEY_HEADER } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import { ServiceError } from "../../errors.ts";
import { toConnectError } from "../../rpc/errors.ts";
import type { Log } from "../../telemetry/log.ts";
import { type PrincipalOf, statusOf } from "./adapter.ts";

/** Probes know no key, and the health service tells nothing but whether the program serves. */
const OPEN = /^\/grpc\.health\.v1\.Health\//;
/** Reflection shows the schema, to anyone with a key. */
const ANY_KEY = /^\/grpc\.reflection\.v1(?:alpha)?\.ServerReflection\//;

/** The gate as grpc-js runs it: when a call's metadata arrives, before any message is read. */
export function gateInterceptor(gate: Gate, log: Log): { interceptor: ServerInterceptor; principalOf: PrincipalOf } {
	const admitted = new WeakMap<Metadata, Principal>();
	const admit = (path: string, metadata: Metadata): void => {
		if (OPEN.test(path)) return;
		const [key] = metadata.get(KEY_HEADER);
		const text = typeof key === "string" ? key : undefined;
		admitted.set(metadata, ANY_KEY.test(path) ? gate.admit(undefined, text) : gate.admitRpc(path, text));
	};
	const interceptor: ServerInterceptor = (method, call) =>
		new ServerInterceptingCall(call, {
			start: (next) =>
				next({
					onReceiveMetadata: (metadata, pass) => {
						try {
							admit(method.path, metadata);
						} catch (error) {
							if (error instanceof ServiceError) log.requestRefused("grpc", error);
							const { code, details, metadata: trailer } = statusOf(toConnectError(error));
							call.sendStatus({ code, details, metadata: trailer });
							return;
						}
						pass(metadata);
					},
				}),
		});
	return { interceptor, principalOf: (metadata) => admitted.get(metadata) };
}
