import { create } from "@bufbuild/protobuf";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import { Gate } from "../../src/access/gate.ts";
import { hashKey, Keyring } from "../../src/access/keys.ts";
import { ServiceError } from "../../src/errors.ts";
import { unary, unaryUndecoded } from "../../src/rpc/rpc-method.ts";
import { SERVICES } from "../../src/rpc/services.ts";
import { Admission, type Work, type WorkLimits } from "../../src/transports/admission.ts";
import { connectHandlers } from "../../src/transports/connect/connect-adapter.ts";
import { LIMITS, type Limits } from "../../src/transports/connections.ts";
import { listenGrpc } from "../../src/transports/grpc/grpc-listener.ts";
import { readBody } from "../../src/transports/http/body.ts";
import { observed } from "../../src/transports/http/exchange.ts";
import { listenHttp } from "../../src/transports/http/http-listener.ts";
import { createRouter, type Route } from "../../src/transports/http/router.ts";
import { HeldBatches } from "../../src/transports/stream-messages.ts";
import { type Endpoints, WEBHOOK } from "../support/clients.ts";
import { unobservedRequests } from "../support/requests.ts";
import { KEY } from "../support/service.ts";
import { silentLog } from "../support/silent-log.ts";

/** Maximum size of a request body in bytes. */
export const MAX_BODY = 100_000;
/** Path of a read: the segment after it is the size of the response in bytes. */
export const ANSWER = "/answer";

/**
 * All transports, with limits that the test chooses and handlers that it controls. A body whose first byte is `r` is
 * refused, one that begins with `w` waits until `letGo`, and any other one is accepted.
 */
export class BoundedService implements Endpoints, AsyncDisposable {
	readonly http: string;
	readonly grpc: string;
	/** For each body that the webhook accepted: `there` if its sender was still connected then, else `gone`. */
	readonly ends: readonly string[];
	readonly #admission: Admission;
	readonly #stop: () => Promise<void>;
	readonly #letGo: () => void;
	readonly #connections: () => number;

	private constructor(
		ports: { http: number; grpc: number },
		admission: Admission,
		stop: () => Promise<void>,
		letGo: () => void,
		ends: readonly string[],
		connections: () => number,
	) {
		this.#connections = connections;
		this.ends = ends;
		this.http = `http://127.0.0.1:${ports.http}`;
		this.grpc = `127.0.0.1:${ports.grpc}`;
		this.#admission = admission;
		this.#stop = stop;
		this.#letGo = letGo;
	}

	static async start(
		maxBytes: number,
		bounds: Partial<Record<Work, WorkLimits>> = {},
		changed: Partial<Limits> = {},
	): Promise<BoundedService> {
		const limits = { ...LIMITS, ...changed };
		const admission = new Admission(maxBytes, bounds);
		const log = silentLog();
		const stopping = new AbortController();
		const letGo = Promise.withResolvers<void>();
		const ends: string[] = [];
		const take = async (body: Uint8Array): Promise<void> => {
			const first = String.fromCharCode(body[0] ?? 0);
			if (first === "r") throw new ServiceError("invalid_argument", "refused");
			if (first === "w") await letGo.promise;
		};
		const scopes = new Set(["ingest", "read"] as const);
		const gate = new Gate(new Keyring([{ name: "test", scopes, owner: undefined, hash: hashKey(KEY) }]), SERVICES);
		const methods = [
			unaryUndecoded(ConversationIngestService.method.ingestConversation, "conversation", async (request) => {
				await take(request);
				return { success: true };
			}),
			unary(ConversationService.method.getConversation, async ({ id }) => ({
				conversation: create(ConversationInfoSchema, { title: "x".repeat(Number(id)) }),
			})),
		];
		const routes: Route[] = [
			{
				method: "POST",
				path: WEBHOOK,
				scope: "ingest",
				handle: async ({ request, permit, signal }) => {
					await take(await readBody(request, MAX_BODY, (bytes) => permit.reserve(bytes)));
					ends.push(signal.aborted ? "gone" : "there");
					return "{}";
				},
			},
			{
				method: "GET",
				path: `${ANSWER}/{size}`,
				scope: "read",
				handle: async ({ params }) => "x".repeat(Number(params.size)),
			},
			{ method: "GET", path: "/healthz", scope: "public", isProbe: true, handle: async () => "{}" },
		];
		const held = new HeldBatches(admission);
		const options = { methods, gate, admission, held, maxBodyBytes: MAX_BODY, stopping: stopping.signal, limits };
		const requests = unobservedRequests();
		const address = { host: "127.0.0.1", port: 0 };
		const answer = createRouter({ routes, rpcs: connectHandlers(options), gate, admission, limits });
		const http = await listenHttp({ address, tls: undefined, log, limits }, observed(requests, answer));
		const grpc = await listenGrpc({ ...options, services: SERVICES, address, tls: undefined, requests, log });
		const stop = async (): Promise<void> => {
			stopping.abort();
			http.kill();
			grpc.kill();
		};
		const ports = { http: http.address.port, grpc: grpc.address.port };
		return new BoundedService(ports, admission, stop, letGo.resolve, ends, () => http.connections());
	}

	/** Requests under way and their bytes, of ingest and of reads. */
	get underWay(): { readonly ingest: WorkLimits; readonly read: WorkLimits } {
		return { ingest: this.#admission.underWay("ingest"), read: this.#admission.underWay("read") };
	}

	/** Number of open connections of the HTTP listener. */
	get connections(): number {
		return this.#connections();
	}

	/** Lets all waiting handlers continue. Handlers of later bodies do not wait. */
	letGo(): void {
		this.#letGo();
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#letGo();
		await this.#stop();
	}
}
