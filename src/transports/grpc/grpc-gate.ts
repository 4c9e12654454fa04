import { Metadata, ServerInterceptingCall, type ServerInterceptor } from "@grpc/grpc-js";
import { type Gate, KEY_HEADER } from "../../access/gate.ts";
import type { Principal } from "../../access/keys.ts";
import { ServiceError } from "../../errors.ts";
import { type ObservedRequest, REQUEST_ID_HEADER, type Requests } from "../../telemetry/requests.ts";
import { type Admission, workOf } from "../admission.ts";
import { certificateName } from "../connections.ts";
import type { Limits } from "../limits.ts";
import type { Permit } from "../permits.ts";
import { BatchingCall } from "./grpc-batch.ts";
import { grpcStatus } from "./grpc-status.ts";

/** Probes know no key, and the schema is public: these services tell nothing of conversations. */
export const OPEN = /^\/grpc\.(?:health\.v1\.Health|reflection\.v1(?:alpha)?\.ServerReflection)\//;

/** A call that the gate has let in. */
export interface AdmittedCall {
	readonly caller: Principal;
	readonly permit: Permit;
	readonly seen: ObservedRequest;
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
	/** Is told of the begin and the end of each call. */
	readonly requests: Requests;
	readonly limits: Limits;
}

/**
 * The gate as an interceptor of grpc-js: it decides when a call's metadata arrives, before any message is read. It also
 * tells of the begin and the end of each call, and gives its id with the answer.
 */
export function gateInterceptor(options: GateInterceptorOptions): {
	interceptor: ServerInterceptor;
	admittedBy: AdmittedBy;
} {
	const { gate, admission, isStream, requests, limits } = options;
	// grpc-js has no place on a call for values that a server adds.
	const calls = new WeakMap<Metadata, AdmittedCall>();
	let openCalls = 0;
	const interceptor: ServerInterceptor = ({ path }, call) => {
		const isOpen = OPEN.test(path);
		const batching = call instanceof BatchingCall ? call : undefined;
		let seen: ObservedRequest | undefined;
		let answered = false;
		/** Lets go of what counts the call. */
		let leave: (() => void) | undefined;
		/** Whether the id was sent. */
		let named = false;
		const admit = (metadata: Metadata, request: ObservedRequest): void => {
			if (isOpen) {
				if (openCalls >= limits.openCalls)
					throw new ServiceError("unavailable", "Too many calls without a key are under way");
				openCalls += 1;
				leave = () => {
					openCalls -= 1;
				};
				return;
			}
			const [key] = metadata.get(KEY_HEADER);
			const caller =
				typeof key === "string" && key !== ""
					? gate.admitRpc(path, key)
					: gate.admitRpc(path, undefined, certificateName(call.getAuthContext().sslPeerCertificate));
			request.admitted(caller.name);
			const giveUp = (error: ServiceError): void => {
				if (!answered && batching?.refusal === undefined) refuse(request, error);
				batching?.end();
			};
			const permit = admission.enter(workOf(gate.scopeOf(path), isStream(path)), batching?.reading, giveUp);
			calls.set(metadata, { caller, permit, seen: request });
			leave = permit.hold();
			batching?.count(permit, (error) => refuse(request, error));
		};
		const refuse = (request: ObservedRequest, error: unknown): void => {
			request.failed(error);
			const status = grpcStatus(error);
			status.metadata.set(REQUEST_ID_HEADER, request.id);
			answered = true;
			call.sendStatus(status);
		};
		return new ServerInterceptingCall(call, {
			start: (next) =>
				next({
					onReceiveMetadata: (metadata, pass) => {
						const target = { transport: "grpc", operation: path, route: path } as const;
						const request = requests.begin("grpc", target, (name) => metadata.get(name)[0]?.toString());
						seen = request;
						try {
							admit(metadata, request);
						} catch (error) {
							refuse(request, error);
							return;
						}
						pass(metadata);
					},
					onReceiveMessage: (message: unknown, pass) => {
						if (message instanceof Uint8Array) seen?.received(message.length);
						pass(message);
					},
					// At the end of every call.
					onCancel: () => {
						leave?.();
						const refusal = batching?.refusal;
						if (refusal !== undefined) seen?.failed(refusal);
						seen?.end(answered);
					},
				}),
			sendMetadata: (metadata, pass) => {
				if (seen !== undefined) metadata.set(REQUEST_ID_HEADER, seen.id);
				named = true;
				pass(metadata);
			},
			sendStatus: (status, pass) => {
				answered = true;
				if (named || seen === undefined) return pass(status);
				// An answer of a status alone.
				const metadata = status.metadata ?? new Metadata();
				metadata.set(REQUEST_ID_HEADER, seen.id);
				pass({ ...status, metadata });
			},
		});
	};
	return { interceptor, admittedBy: (metadata) => calls.get(metadata) };
}
