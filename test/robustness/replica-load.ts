import { randomUUID } from "node:crypto";
import { setTimeout as delay, setImmediate } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { Code, ConnectError } from "@connectrpc/connect";
import { createConversationsClient } from "../../src/client.ts";
import { GrpcClient } from "../support/clients.ts";
import type { Random } from "../support/random.ts";
import { KEY } from "../support/service.ts";
import { type Conversation, expectEachOnce, expectRecords, keptBy } from "./kept.ts";
import { failureOf, KINDS, type Post, type Target } from "./posts.ts";
import type { Replica } from "./replica.ts";
import { type Report, unlessSilent } from "./report.ts";

/** Number of posts to one conversation before a writer begins another one. */
const POSTS = 30;
/** Maximum pause of a writer between two posts, and pause before a retry, in milliseconds. */
const MAX_PAUSE = 60;
const RETRY_INTERVAL = 100;
/** Maximum time for a post with its retries, for posts to be acknowledged, and for watchers to catch up, in milliseconds. */
const TIMEOUT = 90_000;

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
	readonly #targets: readonly (Target & { readonly replica: Replica })[];
	readonly #report: Report;
	readonly #conversations: Conversation[] = [];
	readonly #writers: readonly Promise<void>[];
	readonly #watchers: readonly Watcher[];
	readonly #end = new AbortController();
	#stopping = false;
	#acknowledged = 0;

	/** Starts writers and watchers. A replica that occurs several times has as many of each. */
	constructor(replicas: readonly Replica[], random: Random, report: Report) {
		this.#report = report;
		this.#targets = replicas.map((replica) => ({ replica, grpc: new GrpcClient(replica, KEY) }));
		this.#watchers = replicas.flatMap((replica, n) => [
			this.#watch(replica, `updates on ${n}`, "updates", n % 2 === 0 ? "grpc" : "connect"),
			this.#watch(replica, `events on ${n}`, "events", n % 2 === 0 ? "grpc-web" : "grpc"),
		]);
		const writers = replicas.flatMap((_, n) =>
			[...KINDS.keys()].map((kind) => this.#write(kind, n, random.of(`${kind} ${n}`))),
		);
		// A writer that gives up is a violation. The other writers continue.
		this.#writers = writers.map((writer) => writer.catch((error) => report.breaks(String(error))));
	}

	/** Number of acknowledged posts so far. */
	get acknowledged(): number {
		return this.#acknowledged;
	}

	/** Waits until as many further posts were acknowledged. */
	async more(posts: number): Promise<void> {
		const enough = this.#acknowledged + posts;
		const until = performance.now() + TIMEOUT;
		while (this.#acknowledged < enough && performance.now() < until) await setImmediate();
		this.#report.expect(this.#acknowledged >= enough, `not even ${posts} posts were acknowledged in ${TIMEOUT} ms`);
	}

	/**
	 * Stops the writers, then compares the acknowledged posts with the content of each replica and with what each watcher
	 * received.
	 */
	async expectKept(): Promise<void> {
		this.#stopping = true;
		await Promise.all(this.#writers);
		const replicas = [...new Set(this.#targets.map(({ replica }) => replica))];
		const kept = await Promise.all(replicas.map((replica) => onceAvailable(() => keptBy(replica))));
		const [[replica], [first]] = [replicas, kept];
		if (replica === undefined || first === undefined) throw new Error("there is no replica");
		for (const [n, other] of kept.entries())
			this.#report.expect(isDeepStrictEqual(other, first), `replica ${n} has something else than replica 0`);
		expectEachOnce(first, this.#conversations, this.#report);
		await expectRecords(replica, this.#conversations, this.#report);
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

	async #write(kind: string, home: number, random: Random): Promise<void> {
		while (!this.#stopping) {
			const conversation = { id: randomUUID(), records: [], record: undefined, events: [], lastAction: undefined };
			this.#conversations.push(conversation);
			for (let n = 0; n < POSTS && !this.#stopping; n++) {
				const post = KINDS.get(kind)?.(conversation, `${kind} ${home}`, n, random.integer(0, 1000));
				if (post !== undefined) await this.#untilAcknowledged(kind, home, post);
				await delay(random.integer(0, MAX_PAUSE));
			}
		}
	}

	/** Sends a post to one replica after the other until it is acknowledged. */
	async #untilAcknowledged(kind: string, home: number, post: Post): Promise<void> {
		const until = performance.now() + TIMEOUT;
		for (let attempt = 0; performance.now() < until; attempt++) {
			const target = this.#targets[(home + attempt) % this.#targets.length];
			if (target === undefined) break;
			let sequence: bigint | undefined;
			const sent = post.send(target).then((number) => {
				sequence = number;
				return "success";
			}, failureOf);
			const answer = await unlessSilent(sent);
			this.#report.answer(kind, answer, { refusable: true });
			if (answer === "success") {
				this.#acknowledged += 1;
				post.keep(sequence);
				return;
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
			const watched = log === "updates" ? client.watch(request, options) : client.watchEvents(request, options);
			try {
				for await (const { content } of watched)
					if (content.case === "update" || content.case === "event") seen.push(content.value.sequence);
			} catch (error) {
				if (!this.#end.signal.aborted)
					this.#report.breaks(`the watcher of ${name} was ended: ${ConnectError.from(error).message}`);
			}
		};
		return { name, log, seen, ended: follow() };
	}
}

/** Reads again while a replica's connections to the database recover. */
async function onceAvailable<Result>(read: () => Promise<Result>): Promise<Result> {
	for (const until = performance.now() + TIMEOUT; ; ) {
		try {
			return await read();
		} catch (error) {
			if (ConnectError.from(error).code !== Code.Unavailable || performance.now() > until) throw error;
			await delay(RETRY_INTERVAL);
		}
	}
}
