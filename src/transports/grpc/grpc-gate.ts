import { type Metadata, ServerInterceptingCall, type ServerInterceptor } from "@grpc/grpc-js";
import { type Gate, KEY_HEADER } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import { ServiceError } from "../../errors.ts";
import type { RequestLog } from "../../telemetry/log.ts";
import { certificateName } from "../connections.ts";
import type { Limits } from "../limits.ts";
import { refusalOf } from "./grpc-batch.ts";
import { grpcStatus } from "./grpc-status.ts";

/** Probes know no key, and the schema is public: these services tell nothing of conversations. */
export const OPEN = /^\/grpc\.(?:health\.v1\.Health|reflection\.v1(?:alpha)?\.ServerReflection)\//;

/** Gives the caller that the gate admitted with a call's metadata. */
export type CallerOf = (metadata: Metadata) => Principal | undefined;

/** The gate as an interceptor of grpc-js: it decides when a call's metadata arrives, before any message is read. */
export function gateInterceptor(
	gate: Gate,
	log: RequestLog,
	limits: Limits,
): { interceptor: ServerInterceptor; callerOf: CallerOf } {
	// grpc-js has no place on a call for values that a server adds.
	const admitted = new WeakMap<Metadata, Principal>();
	let openCalls = 0;
	const interceptor: ServerInterceptor = ({ path }, call) => {
		const isOpen = OPEN.test(path);
		let caller: Principal | undefined;
		let counted = false;
		const admit = (metadata: Metadata): void => {
			if (isOpen) {
				if (openCalls >= limits.openCalls)
					throw new ServiceError("unavailable", "Too many calls without a key are under way");
				openCalls += 1;
				counted = true;
				return;
			}
			const [key] = metadata.get(KEY_HEADER);
			caller =
				typeof key === "string" && key !== ""
					? gate.admitRpc(path, key)
					: gate.admitRpc(path, undefined, certificateName(call.getAuthContext().sslPeerCertificate));
			admitted.set(metadata, caller);
		};
		return new ServerInterceptingCall(call, {
			start: (next) =>
				next({
					onReceiveMetadata: (metadata, pass) => {
						try {
							admit(metadata);
						} catch (error) {
							log.requestFailed({ transport: "grpc", operation: path }, error);
							call.sendStatus(grpcStatus(error));
							return;
						}
						pass(metadata);
					},
					// At the end of every call.
					onCancel: () => {
						if (counted) openCalls -= 1;
						const refusal = refusalOf(call);
						if (refusal !== undefined)
							log.requestFailed({ transport: "grpc", operation: path, caller: caller?.name }, refusal);
					},
				}),
		});
	};
	return { interceptor, callerOf: (metadata) => admitted.get(metadata) };
}
