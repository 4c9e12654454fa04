import { createSecretKey } from "node:crypto";
import { AccessKeys } from "../../src/access/access-keys.ts";
import { Gate } from "../../src/access/gate.ts";
import { hashKey, Keyring, type Scope } from "../../src/access/keys.ts";
import { Budgets } from "../../src/budgets/budgets.ts";
import type { ConversationReads } from "../../src/conversations/conversation-reads.ts";
import { conversationEraser } from "../../src/conversations/erase.ts";
import { ingestOf } from "../../src/conversations/ingest/ingest.ts";
import { countConversations } from "../../src/conversations/read/count.ts";
import { listGaps } from "../../src/conversations/read/gaps.ts";
import { ReportUsage } from "../../src/conversations/read/report-usage.ts";
import { getRefusedPost, listRefusedPosts } from "../../src/conversations/refused/list-and-retry.ts";
import { scoresOf } from "../../src/conversations/scores.ts";
import { listSenders } from "../../src/conversations/senders.ts";
import {
	type EventWatches,
	eventWatches,
	type UpdateWatches,
	updateWatches,
} from "../../src/conversations/watch/watches.ts";
import { UpdateParser } from "../../src/intake/record-intake.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { rpcMethods, SERVICES } from "../../src/rpc/services.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { Admission, type WorkLimits } from "../../src/transports/admission.ts";
import { connectHandlers } from "../../src/transports/connect/connect-adapter.ts";
import { LIMITS } from "../../src/transports/connections.ts";
import { listenGrpc } from "../../src/transports/grpc/grpc-listener.ts";
import { observed } from "../../src/transports/http/exchange.ts";
import { listenHttp } from "../../src/transports/http/http-listener.ts";
import { createRouter } from "../../src/transports/http/router.ts";
import { jsonRoutes } from "../../src/transports/reads/reads.ts";
import { HeldBatches } from "../../src/transports/stream-messages.ts";
import { format, Reading } from "../conversations/read/reading.ts";
import type { Endpoints } from "../support/clients.ts";
import { testEndpoints } from "../support/endpoints.ts";
import { unobservedRequests } from "../support/requests.ts";

/** Keys of the service. The first one has the scope read, the second one the scopes read and secrets. */
export const READ_KEY = "key-that-may-read";
export const SECRETS_KEY = "key-that-may-read-secrets";

/** The RPCs behind both listeners, over a store that the test can change directly. Ingesting events is not supported. */
export class WatchService implements Endpoints, AsyncDisposable {
	readonly reading: Reading;
	readonly watches: UpdateWatches;
	readonly eventWatches: EventWatches;
	/** The lines of the log. */
	readonly logged: readonly string[];
	readonly http: string;
	readonly grpc: string;
	/** Counts the requests under way. */
	readonly admission: Admission;
	readonly #stop: () => Promise<void>;

	private constructor(
		parts: Pick<WatchService, "reading" | "watches" | "eventWatches" | "admission" | "logged">,
		ports: { http: number; grpc: number },
		stop: () => Promise<void>,
	) {
		this.reading = parts.reading;
		this.watches = parts.watches;
		this.eventWatches = parts.eventWatches;
		this.admission = parts.admission;
		this.logged = parts.logged;
		this.http = `http://127.0.0.1:${ports.http}`;
		this.grpc = `127.0.0.1:${ports.grpc}`;
		this.#stop = stop;
	}

	/**
	 * @param heartbeat milliseconds without a message after which a watch sends a heartbeat
	 * @param bounds limits of watches that replace the usual ones
	 * @param answerTime milliseconds in which the client of an event stream must take a message
	 */
	static async start(heartbeat = 2 ** 30, bounds?: WorkLimits, answerTime = LIMITS.answerTime): Promise<WatchService> {
		const reading = await Reading.open([createSecretKey(Buffer.alloc(32, 7))]);
		const stopping = new AbortController();
		const watching = { heartbeat, stopping: stopping.signal };
		const watches = updateWatches(reading.store, () => reading.views, watching);
		const ofEvents = eventWatches(reading.store, reading.eventViews, watching);
		const logged: string[] = [];
		const log = createLogger("info", { write: (line) => logged.push(line) });
		const key = (text: string, ...scopes: Scope[]) => ({
			name: text,
			scopes: new Set(scopes),
			owner: undefined,
			hash: hashKey(text),
		});
		const keys = new Keyring([key(READ_KEY, "read"), key(SECRETS_KEY, "read", "secrets")]);
		const { get, list, updates, events } = reading;
		const parser = new UpdateParser(format, new RecordVault(format, []));
		const unused = () => Promise.reject(new Error("events are not taken"));
		const eventIngest = { request: unused, applyUnappliedEvents: unused };
		const intake = {
			fromJson: async (body: Uint8Array) => parser.fromJson(body),
			fromRequest: async (request: Uint8Array) => parser.fromRequest(request),
			fromFetched: unused,
		};
		const ingest = ingestOf(reading.store, intake, eventIngest);
		const admission = new Admission(16 * 1024 * 1024, bounds && { watch: bounds });
		const accessKeys = await AccessKeys.open(reading.store, { configured: [], log });
		const kept = { bodyOf: unused };
		const taking = { json: unused, request: unused };
		const reads: Pick<ConversationReads, "of"> = {
			of: () => ({
				get,
				list,
				erasing: conversationEraser(reading.store, async () => undefined),
				counts: { count: (request) => countConversations(reading.store, request) },
				updates,
				events,
				usage: new ReportUsage(reading.store),
				gaps: { list: (request) => listGaps(reading.store, request) },
				scores: scoresOf(reading.store),
				senders: { list: () => listSenders(reading.store, { of: () => undefined }) },
				refused: {
					list: (request) => listRefusedPosts(reading.store, request),
					get: (id, withBody) => getRefusedPost(reading.store, kept, id, withBody),
				},
				search: reading.search,
				watchUpdates: (request, signal) => watches.watch(request, signal),
				watchEvents: (request, signal) => ofEvents.watch(request, signal),
			}),
		};
		const options = {
			services: SERVICES,
			methods: rpcMethods({
				ingest,
				eventIngest,
				reads,
				retries: { store: reading.store, kept, records: taking, events: taking },
				accessKeys,
				endpoints: testEndpoints(reading.store),
				budgets: new Budgets({ store: reading.store, now: Date.now }),
				store: reading.store,
				log,
				info: () => ({}),
			}),
			gate: new Gate(keys, SERVICES),
			admission,
			held: new HeldBatches(admission),
			maxBodyBytes: 1024 * 1024,
			stopping: stopping.signal,
		};
		const requests = unobservedRequests(log);
		const address = { host: "127.0.0.1", port: 0 };
		const { methods } = options;
		const routes = jsonRoutes("", {
			methods,
			reads,
			store: reading.store,
			format,
			maxBodyBytes: options.maxBodyBytes,
			stream: { ...options, limits: { answerTime } },
		});
		const http = await listenHttp(
			{ address, tls: undefined, log },
			observed(requests, createRouter({ ...options, routes, rpcs: connectHandlers(options) })),
		);
		const grpc = await listenGrpc({ ...options, address, tls: undefined, requests, log });
		const stop = async () => {
			stopping.abort();
			const until = performance.now() + 25_000;
			await Promise.all([http.stop(5_000, until), grpc.stop(5_000, until)]);
			await accessKeys[Symbol.asyncDispose]();
		};
		return new WatchService(
			{ reading, watches, eventWatches: ofEvents, admission, logged },
			{ http: http.address.port, grpc: grpc.address.port },
			stop,
		);
	}

	/** Stores updates one after another. Returns the sequence of the last one. */
	async keep(count: number): Promise<bigint> {
		let sequence = 0n;
		for (let index = 0; index < count; index++) sequence = (await this.reading.keep({ title: `${index}` })).sequence;
		return sequence;
	}

	stop(): Promise<void> {
		return this.#stop();
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#stop();
		await this.reading[Symbol.asyncDispose]();
	}
}
