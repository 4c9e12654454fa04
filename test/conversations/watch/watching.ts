import type { WatchConversationUpdatesResponse } from "../../../gen/conversations/v1/conversation_service_pb.js";
import type { WatchBatch, Watches, WatchRequest } from "../../../src/conversations/watch/watch.ts";
import type { Store, UpdateQuery } from "../../../src/store/store.ts";

/** What a message says: the sequence of an update, or a heartbeat's place and the newest sequence. */
export type Said = bigint | { readonly at: bigint; readonly latest: bigint };

/** What a message of a watch says. */
export function said({ sequence, event }: WatchConversationUpdatesResponse): Said {
	switch (event.case) {
		case "update":
			if (event.value.sequence !== sequence) throw new Error(`update ${event.value.sequence} came at ${sequence}`);
			return sequence;
		case "heartbeat":
			return { at: sequence, latest: event.value.latestSequence };
		default:
			throw new Error("a message without an event");
	}
}

/** A watch that is read by hand. */
export class Watcher {
	readonly #batches: AsyncGenerator<WatchBatch, void, undefined>;
	readonly #cancel = new AbortController();
	readonly #pending: WatchConversationUpdatesResponse[] = [];

	constructor(watches: Watches, request: Partial<WatchRequest> = {}, signal?: AbortSignal) {
		const whole: WatchRequest = {
			start: "beginning",
			conversationId: undefined,
			filter: undefined,
			view: { full: false, secrets: "redacted", secretPaths: false },
			...request,
		};
		const signals = signal === undefined ? [this.#cancel.signal] : [this.#cancel.signal, signal];
		this.#batches = watches.watch(whole, AbortSignal.any(signals));
	}

	/** The next message; undefined at the end. */
	async message(): Promise<WatchConversationUpdatesResponse | undefined> {
		while (this.#pending.length === 0) {
			const { value, done } = await this.#batches.next();
			if (done === true) return undefined;
			this.#pending.push(...value.map(({ message }) => message));
		}
		return this.#pending.shift();
	}

	/** What the next `count` messages say. */
	async next(count: number): Promise<Said[]> {
		const messages: Said[] = [];
		while (messages.length < count) {
			const message = await this.message();
			if (message === undefined) throw new Error(`the watch ended after ${messages.length} messages`);
			messages.push(said(message));
		}
		return messages;
	}

	/** The sequences of the next updates, up to and with `last`, without the heartbeats between them. */
	async through(last: bigint): Promise<bigint[]> {
		const sequences: bigint[] = [];
		while (sequences.at(-1) !== last) {
			const [message] = await this.next(1);
			if (typeof message === "bigint") sequences.push(message);
		}
		return sequences;
	}

	/** Reads heartbeats until one stands at a sequence. */
	async heartbeatAt(sequence: bigint): Promise<Said> {
		for (;;) {
			const [message] = await this.next(1);
			if (typeof message === "object" && message.at === sequence) return message;
		}
	}

	/** As a client that goes away. */
	cancel(): void {
		this.#cancel.abort();
	}
}

/** A store whose reads of updates are counted and can be made to fail. */
export interface SpiedStore extends Store {
	/** Queries for updates so far. */
	readonly queries: UpdateQuery[];
	/** How many listen for commits. */
	readonly listeners: () => number;
	/** Thrown by reads of updates while it is set. */
	failure: Error | undefined;
}

/** A store in front of another one. */
export function spy(store: Store): SpiedStore {
	const queries: UpdateQuery[] = [];
	let listeners = 0;
	const spied: SpiedStore = {
		queries,
		listeners: () => listeners,
		failure: undefined,
		events: store.events,
		append: (update) => store.append(update),
		appendEvents: (batch) => store.appendEvents(batch),
		getLiveState: (conversationId, eventIds) => store.getLiveState(conversationId, eventIds),
		listBehind: (limit) => store.listBehind(limit),
		get: (conversationId, asOf) => store.get(conversationId, asOf),
		listConversations: (query) => store.listConversations(query),
		updates: {
			list: (query) => {
				queries.push(query);
				return spied.failure === undefined ? store.updates.list(query) : Promise.reject(spied.failure);
			},
			range: (query) => store.updates.range(query),
			subscribe: (listener) => {
				const stop = store.updates.subscribe(listener);
				listeners += 1;
				return () => {
					listeners -= 1;
					stop();
				};
			},
		},
		prune: (policy) => store.prune(policy),
		pruneEvents: (receivedBefore, limit) => store.pruneEvents(receivedBefore, limit),
		check: () => store.check(),
		close: () => store.close(),
		[Symbol.asyncDispose]: () => store.close(),
	};
	return spied;
}

/** The numbers from `first` to `last`. */
export function numbers(first: bigint, last: bigint): bigint[] {
	return Array.from({ length: Number(last - first) + 1 }, (_, index) => first + BigInt(index));
}
