import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import type { JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ConversationEventIngestService } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { createConversationsClient } from "../../src/client.ts";
import { GrpcClient, GrpcFailure } from "../support/clients.ts";
import { ingestEventsRequest } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import type { Random } from "../support/random.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import { type Conversation, expectEachOnce, type Kept, keptBy } from "./kept.ts";
import { batchOf, eventsByWebhook, filler, POSTED_AT, Refused, recordByWebhook } from "./posts.ts";
import type { Replica } from "./replica.ts";
import { type Report, unlessSilent } from "./report.ts";

/** Number of posts to one conversation before a writer begins another one. */
const POSTS = 30;
/** Maximum pause of a writer between two posts, and pause before a retry, in milliseconds. */
const MAX_PAUSE = 60;
const RETRY_INTERVAL = 100;
/** Maximum time for a post with its retries, and for watchers to catch up, in milliseconds. */
const TIMEOUT = 90_000;

/** Sends a post once. Returns the sequence of the update if the response has it. */
type Send = (to: Target) => Promise<bigint | undefined>;

/** A replica with the client that all writers share. */
interface Target {
	readonly replica: Replica;
	readonly grpc: GrpcClient;
}

/** Watches all updates or events from the beginning, and resumes after an interruption. */
interface Watcher {
	readonly name: string;
	readonly log: "updates" | "events";
	readonly seen: bigint[];
	readonly ended: Promise<void>;
}

/**
 * Writers and watchers on several replicas of one database. A writer sends an unacknowledged post again, to the next
 * replica, until it is acknowledged. So everything must be stored exactly once.
 */
export class ReplicaLoad implements AsyncDisposable {
	readonly #targets: readonly Target[];
	readonly #report: Report;
	readonly #conversations: Conversation[] = [];
	readonly #writers: readonly Promise<void>[];
	readonly #watchers: readonly Watcher[];
	readonly #end = new AbortController();
	#stopping = false;
	#acknowledged = 0;

	/** Starts writers and watchers. */
	constructor(replicas: readonly Replica[], random: Random, report: Report) {
		this.#report = report;
		this.#targets = replicas.map((replica) => ({ replica, grpc: new GrpcClient(replica, KEY) }));
		this.#watchers = replicas.flatMap((replica, n) => [
			this.#watch(replica, `updates on ${n}`, "updates", n % 2 === 0 ? "grpc" : "connect"),
			this.#watch(replica, `events on ${n}`, "events", n % 2 === 0 ? "grpc-web" : "grpc"),
		]);
		const writers = replicas.flatMap((_, n) => [
			this.#writeRecords(`records over HTTP`, n, random.of(`records HTTP ${n}`), recordOverHttp),
			this.#writeRecords(`records over gRPC`, n, random.of(`records gRPC ${n}`), recordOverGrpc),
			this.#writeEvents(`events over HTTP`, n, random.of(`events HTTP ${n}`), eventsOverHttp),
			this.#writeEvents(`events over gRPC`, n, random.of(`events gRPC ${n}`), eventsOverGrpc),
		]);
		// A writer that gives up is a violation. The other writers continue.
		this.#writers = writers.map((writer) => writer.catch((error) => report.breaks(String(error))));
	}

	/** Number of acknowledged posts so far. */
	get acknowledged(): number {
		return this.#acknowledged;
	}

	/**
	 * Stops the writers, then compares the acknowledged posts with the content of each replica and with what each watcher
	 * received.
	 */
	async expectKept(): Promise<void> {
		this.#stopping = true;
		await Promise.all(this.#writers);
		const kept = await Promise.all(this.#targets.map(({ replica }) => this.#keptBy(replica)));
		const [first] = kept;
		if (first === undefined) throw new Error("there is no replica");
		for (const [n, other] of kept.entries())
			this.#report.expect(isDeepStrictEqual(other, first), `replica ${n} has something else than replica 0`);
		expectEachOnce(first, this.#conversations, this.#report);
		const numbers = {
			updates: first.updates.map(({ sequence }) => sequence),
			events: first.events.map(({ sequence }) => sequence),
		};
		const until = performance.now() + TIMEOUT;
		const late = () => this.#watchers.filter(({ log, seen }) => seen.length < numbers[log].length);
		while (late().length > 0 && performance.now() < until) await delay(50);
		for (const { name, log, seen } of this.#watchers) {
			const wrong = seen.findIndex((sequence, n) => sequence !== numbers[log][n]);
			this.#report.expect(
				wrong < 0 && seen.length === numbers[log].length,
				`the watcher of ${name} saw ${seen.length} of ${numbers[log].length}, and the number ${seen[wrong]} in place of ${numbers[log][wrong]}`,
			);
		}
		this.#report.figure(
			`${this.#acknowledged} posts acknowledged to ${this.#conversations.length} conversations; ${numbers.updates.length} updates and ${numbers.events.length} events, seen by ${this.#watchers.length} watchers`,
		);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#stopping = true;
		this.#end.abort();
		await Promise.all([...this.#writers, ...this.#watchers.map(({ ended }) => ended)]);
		for (const { grpc } of this.#targets) grpc[Symbol.dispose]();
	}

	/** Returns the content of a replica. Retries while its connections to the database recover. */
	async #keptBy(replica: Replica): Promise<Kept> {
		for (const until = performance.now() + TIMEOUT; ; ) {
			try {
				return await keptBy(replica);
			} catch (error) {
				if (ConnectError.from(error).code !== Code.Unavailable || performance.now() > until) throw error;
				await delay(RETRY_INTERVAL);
			}
		}
	}

	#begin(): Conversation {
		const conversation: Conversation = { id: randomUUID(), records: [], events: [] };
		this.#conversations.push(conversation);
		return conversation;
	}

	async #writeRecords(kind: string, home: number, random: Random, send: (json: JsonObject) => Send): Promise<void> {
		while (!this.#stopping) {
			const conversation = this.#begin();
			for (let n = 0; n < POSTS && !this.#stopping; n++) {
				const title = `${kind} ${home} ${n}`;
				const tags = { n: String(n) };
				const json = record({
					id: conversation.id,
					title,
					tags,
					agent_state: { filler: filler(random.integer(0, 1000)) },
				});
				const sequence = await this.#untilAcknowledged(kind, home, send(json));
				conversation.records.push({ title, sequence });
				await delay(random.integer(0, MAX_PAUSE));
			}
		}
	}

	async #writeEvents(
		kind: string,
		home: number,
		random: Random,
		send: (id: string, batch: readonly JsonObject[]) => Send,
	): Promise<void> {
		while (!this.#stopping) {
			const conversation = this.#begin();
			const { id } = conversation;
			const title = `${kind} ${home}`;
			const json = record({ id, title, updated_at: POSTED_AT });
			const sequence = await this.#untilAcknowledged(kind, home, recordOverGrpc(json));
			conversation.records.push({ title, sequence });
			for (let n = 0; n < POSTS && !this.#stopping; n++) {
				const batch = batchOf(n, random.integer(0, 1000));
				await this.#untilAcknowledged(kind, home, send(id, batch));
				conversation.events.push(...batch.map((event) => String(event.id)));
				await delay(random.integer(0, MAX_PAUSE));
			}
		}
	}

	/** Sends a post to one replica after the other until it is acknowledged. */
	async #untilAcknowledged(kind: string, home: number, send: Send): Promise<bigint | undefined> {
		const until = performance.now() + TIMEOUT;
		for (let attempt = 0; performance.now() < until; attempt++) {
			const target = this.#targets[(home + attempt) % this.#targets.length];
			if (target === undefined) break;
			let sequence: bigint | undefined;
			const sent = send(target).then((number) => {
				sequence = number;
				return "success";
			}, failureOf);
			const answer = await unlessSilent(sent);
			this.#report.answer(kind, answer, { refusable: true });
			if (answer === "success") {
				this.#acknowledged += 1;
				return sequence;
			}
			await delay(RETRY_INTERVAL);
		}
		throw new Error(`${kind} were not acknowledged in ${TIMEOUT} ms`);
	}

	#watch(replica: Replica, name: string, log: Watcher["log"], protocol: "connect" | "grpc-web" | "grpc"): Watcher {
		const baseUrl = protocol === "grpc" ? `http://${replica.grpc}` : replica.http;
		const client = createConversationsClient({ baseUrl, accessKey: KEY, protocol });
		const request = { start: { case: "afterSequence", value: 0n } } as const;
		const options = { signal: this.#end.signal, backoff: 50, maxBackoff: 500 };
		const seen: bigint[] = [];
		const follow = async (): Promise<void> => {
			try {
				if (log === "updates") {
					for await (const { content } of client.watch(request, options))
						if (content.case === "update") seen.push(content.value.sequence);
				} else {
					for await (const { content } of client.watchEvents(request, options))
						if (content.case === "event") seen.push(content.value.sequence);
				}
			} catch (error) {
				if (!this.#end.signal.aborted)
					this.#report.breaks(`the watcher of ${name} was ended: ${ConnectError.from(error).message}`);
			}
		};
		return { name, log, seen, ended: follow() };
	}
}

const recordOverHttp = (json: JsonObject): Send => {
	return ({ replica }) => recordByWebhook(replica, json);
};
const recordOverGrpc = (json: JsonObject): Send => {
	const request = ingestRequest(json);
	return async ({ grpc }) => (await grpc.call(ConversationIngestService.method.ingestConversation, request)).sequence;
};
const eventsOverHttp = (id: string, batch: readonly JsonObject[]): Send => {
	return async ({ replica }) => {
		await eventsByWebhook(replica, id, batch);
		return undefined;
	};
};
const eventsOverGrpc = (id: string, batch: readonly JsonObject[]): Send => {
	const request = ingestEventsRequest(id, batch);
	return async ({ grpc }) => {
		await grpc.call(ConversationEventIngestService.method.ingestConversationEvents, request);
		return undefined;
	};
};

/** Returns the name under which a report counts a failed post. */
function failureOf(error: unknown): string {
	if (error instanceof Refused) return error.message;
	return error instanceof GrpcFailure ? (Code[error.code] ?? String(error.code)) : "closed";
}
