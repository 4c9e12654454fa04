import { type Metadata, ServerInterceptingCall, type ServerInterceptor } from "@grpc/grpc-js";
import { type Gate, KEY_HEADER } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import { ServiceError } from "../../errors.ts";
import type { RequestLog } from "../../telemetry/log.ts";
import { type Admission, type Stay, workOf } from "../admission.ts";
import { certificateName } from "../connections.ts";
import type { Limits } from "../limits.ts";
import { countCall, refusalOf } from "./grpc-batch.ts";
import { grpcStatus } from "./grpc-status.ts";

/** Probes know no key, and the schema is public: these services tell nothing of conversations. */
export const OPEN = /^\/grpc\.(?:health\.v1\.Health|reflection\.v1(?:alpha)?\.ServerReflection)\//;

/** A call that the gate has let in. */
export interface AdmittedCall {
	readonly caller: Principal;
	readonly stay: Stay;
}

/** Gives the call that the gate has let in with its metadata. */
export type AdmittedBy = (metadata: Metadata) => AdmittedCall | undefined;

/** What the gate of the listener decides by. */
export interface GateInterceptorOptions {
	readonly gate: Gate;
	/** Counts the calls under way. */
	readonly admission: Pick<Admission, "enter">;
	/** Whether the method at a path gives a stream. */
	readonly isStream: (path: string) => boolean;
	readonly log: RequestLog;
	readonly limits: Limits;
}

/** The gate as an interceptor of grpc-js: it decides when a call's metadata arrives, before any message is read. */
export function gateInterceptor(options: GateInterceptorOptions): {
	interceptor: ServerInterceptor;
	admittedBy: AdmittedBy;
} {
	const { gate, admission, isStream, log, limits } = options;
	// grpc-js has no place on a call for values that a server adds.
	const calls = new WeakMap<Metadata, AdmittedCall>();
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
			const stay = admission.enter(workOf(gate.scopeOf(path), isStream(path)));
			calls.set(metadata, { caller, stay });
			countCall(call, stay, refuse);
		};
		const refuse = (error: unknown): void => {
			log.requestFailed({ transport: "grpc", operation: path, caller: caller?.name }, error);
			call.sendStatus(grpcStatus(error));
		};
		return new ServerInterceptingCall(call, {
			start: (next) =>
				next({
					onReceiveMetadata: (metadata, pass) => {
						try {
							admit(metadata);
						} catch (error) {
							refuse(error);
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
	return { interceptor, admittedBy: (metadata) => calls.get(metadata) };
}
