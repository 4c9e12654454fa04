import { type Metadata, ServerInterceptingCall, type ServerInterceptor } from "@grpc/grpc-js";
import { type Gate, KEY_HEADER } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import type { RequestLog } from "../../telemetry/log.ts";
import { grpcStatus } from "./grpc-status.ts";

/** Probes know no key, and the health service tells nothing but whether the service works. */
const OPEN = /^\/grpc\.health\.v1\.Health\//;
/** Reflection shows the schema to anyone with a key. */
const ANY_KEY = /^\/grpc\.reflection\.v1(?:alpha)?\.ServerReflection\//;

/** Gives the caller that the gate admitted with a call's metadata. */
export type CallerOf = (metadata: Metadata) => Principal | undefined;

/** The gate as an interceptor of grpc-js: it decides when a call's metadata arrives, before any message is read. */
export function gateInterceptor(gate: Gate, log: RequestLog): { interceptor: ServerInterceptor; callerOf: CallerOf } {
	// grpc-js has no place on a call for values that a server adds.
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
							log.requestFailed({ transport: "grpc", operation: method.path }, error);
							call.sendStatus(grpcStatus(error));
							return;
						}
						pass(metadata);
					},
				}),
		});
	return { interceptor, callerOf: (metadata) => admitted.get(metadata) };
}
