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

/** Posts to one conversation before a writer begins another one. */
const POSTS = 30;
/** Longest pause of a writer between two posts, and before it tries again, in milliseconds. */
const PAUSE = 60;
const RETRY = 100;
/** How long a writer tries to post one thing, and watchers may take to catch up, in milliseconds. */
const PATIENCE = 90_000;

/** Sends something once. Gives the number of the update, where the answer tells it. */
type Send = (to: Target) => Promise<bigint | undefined>;

/** A replica, and the client that all writers have of it. */
interface Target {
	readonly replica: Replica;
	readonly grpc: GrpcClient;
}

/** One who watches all updates or all events from the beginning, and resumes where it was after a break. */
interface Watcher {
	readonly name: string;
	readonly log: "updates" | "events";
	readonly seen: bigint[];
	readonly ended: Promise<void>;
}

/**
 * Writers and watchers on each of several replicas of one database. A writer whose post is not acknowledged sends it again,
 * to the next replica, until it is: so everything must be kept exactly once.
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
		// A writer that gives up breaks a law, and leaves the others at work.
		this.#writers = writers.map((writer) => writer.catch((error) => report.breaks(String(error))));
	}

	/** Posts that were acknowledged so far. */
	get acknowledged(): number {
		return this.#acknowledged;
	}

	/** Lets the writers end, and compares what was acknowledged with what each replica has and each watcher saw. */
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
		const until = performance.now() + PATIENCE;
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

	/** What a replica has; asks again while its way to the database recovers from the last trouble. */
	async #keptBy(replica: Replica): Promise<Kept> {
		for (const until = performance.now() + PATIENCE; ; ) {
			try {
				return await keptBy(replica);
			} catch (error) {
				if (ConnectError.from(error).code !== Code.Unavailable || performance.now() > until) throw error;
				await delay(RETRY);
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
				await delay(random.integer(0, PAUSE));
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
				await delay(random.integer(0, PAUSE));
			}
		}
	}

	/** Sends something, to one replica after the other, until it is acknowledged. */
	async #untilAcknowledged(kind: string, home: number, send: Send): Promise<bigint | undefined> {
		const until = performance.now() + PATIENCE;
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
			await delay(RETRY);
		}
		throw new Error(`${kind} were not acknowledged in ${PATIENCE} ms`);
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
					for await (const { event } of client.watch(request, options))
						if (event.case === "update") seen.push(event.value.sequence);
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

/** What a report counts for a post that was not acknowledged. */
function failureOf(error: unknown): string {
	if (error instanceof Refused) return error.message;
	return error instanceof GrpcFailure ? (Code[error.code] ?? String(error.code)) : "closed";
}
