import type { WatchConversationEventsResponse } from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { WatchConversationUpdatesResponse } from "../../../gen/conversations/v1/conversation_service_pb.js";
import type {
	EventWatches,
	EventWatchRequest,
	UpdateWatches,
	UpdateWatchRequest,
} from "../../../src/conversations/watch/watches.ts";
import type { LogListener, SequenceLog } from "../../../src/store/sequence-log.ts";

type WatchMessage = WatchConversationUpdatesResponse | WatchConversationEventsResponse;

/** A message in short: the sequence of an entry, or a heartbeat with its position and the newest sequence. */
export type Said = bigint | { readonly at: bigint; readonly latest: bigint };

/** Returns a message of a watch in short. */
export function said({ sequence, content }: WatchMessage): Said {
	switch (content.case) {
		case "update":
		case "event":
			if (content.value.sequence !== sequence) throw new Error(`entry ${content.value.sequence} came at ${sequence}`);
			return sequence;
		case "heartbeat":
			return { at: sequence, latest: content.value.latestSequence };
		default:
			throw new Error("a message without an entry");
	}
}

/** A watch whose messages the test reads one by one. */
class MessageReader<Message extends WatchMessage> {
	readonly #batches: AsyncGenerator<readonly { readonly message: Message }[], void>;
	readonly #cancel = new AbortController();
	readonly #pending: Message[] = [];

	constructor(open: (signal: AbortSignal) => AsyncGenerator<readonly { readonly message: Message }[], void>) {
		this.#batches = open(this.#cancel.signal);
	}

	/** Returns the next message; undefined at the end of the watch. */
	async message(): Promise<Message | undefined> {
		while (this.#pending.length === 0) {
			const { value, done } = await this.#batches.next();
			if (done === true) return undefined;
			this.#pending.push(...value.map(({ message }) => message));
		}
		return this.#pending.shift();
	}

	/** Reads the next `count` messages and returns them in short. */
	async next(count: number): Promise<Said[]> {
		const messages: Said[] = [];
		while (messages.length < count) {
			const message = await this.message();
			if (message === undefined) throw new Error(`the watch ended after ${messages.length} messages`);
			messages.push(said(message));
		}
		return messages;
	}

	/** Reads up to the entry `last`, and returns the sequences of all entries without the heartbeats. */
	async through(last: bigint): Promise<bigint[]> {
		const sequences: bigint[] = [];
		while (sequences.at(-1) !== last) {
			const [message] = await this.next(1);
			if (typeof message === "bigint") sequences.push(message);
		}
		return sequences;
	}

	/** Reads until a heartbeat at this sequence and returns that heartbeat. */
	async heartbeatAt(sequence: bigint): Promise<Said> {
		for (;;) {
			const [message] = await this.next(1);
			if (typeof message === "object" && message.at === sequence) return message;
		}
	}

	/** Ends the watch as a client that disconnects does. */
	cancel(): void {
		this.#cancel.abort();
	}
}

/** Reads a watch of updates. */
export class Watcher extends MessageReader<WatchConversationUpdatesResponse> {
	constructor(watches: UpdateWatches, request: Partial<UpdateWatchRequest> = {}, signal?: AbortSignal) {
		const all = { start: "beginning", conversationId: undefined, filter: undefined } as const;
		const view = { full: false, secrets: "redacted", secretPaths: false } as const;
		super((own) =>
			watches.watch({ ...all, view, ...request }, signal === undefined ? own : AbortSignal.any([own, signal])),
		);
	}
}

/** Reads a watch of events. */
export class EventWatcher extends MessageReader<WatchConversationEventsResponse> {
	constructor(watches: EventWatches, request: Partial<EventWatchRequest> = {}) {
		const all = { start: "beginning", conversationId: undefined, filter: undefined, secrets: "redacted" } as const;
		super((signal) => watches.watch({ ...all, ...request }, signal));
	}
}

/** A log whose reads are recorded and can be made to fail. */
export interface SpiedLog<Entry, Query> extends SequenceLog<Entry, Query> {
	/** All queries so far. The test may clear them. */
	readonly queries: Query[];
	/** Returns the number of listeners. */
	readonly listeners: () => number;
	/** The error with which reads fail while it is set. */
	failure: Error | undefined;
	/** Notifies the listeners that the entries after a sequence have been lost. */
	readonly lose: (newest: bigint) => void;
}

/** Wraps a log. */
export function spyLog<Entry, Query>(log: SequenceLog<Entry, Query>): SpiedLog<Entry, Query> {
	const listeners = new Set<LogListener>();
	const spied: SpiedLog<Entry, Query> = {
		queries: [],
		listeners: () => listeners.size,
		failure: undefined,
		lose: (newest) => {
			for (const listener of [...listeners]) listener(newest, "lost");
		},
		list: (query) => {
			spied.queries.push(query);
			return spied.failure === undefined ? log.list(query) : Promise.reject(spied.failure);
		},
		range: (query) => log.range(query),
		subscribe: (listener) => {
			const stop = log.subscribe(listener);
			listeners.add(listener);
			return () => {
				listeners.delete(listener);
				stop();
			};
		},
	};
	return spied;
}

/** Returns the numbers from `first` to `last`. */
export function numbers(first: bigint, last: bigint): bigint[] {
	return Array.from({ length: Number(last - first) + 1 }, (_, index) => first + BigInt(index));
}
