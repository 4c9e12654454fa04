import { toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import {
	ConversationEventEntrySchema,
	ConversationEventService,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	ConversationService,
	ConversationUpdateSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange } from "../../../gen/conversations/v1/update_pb.js";

/**
 * Watches that the tabs of a browser share. Over HTTP/1.1 a browser opens six connections to a service, whatever the
 * number of its tabs; so a shared worker holds a few streams and passes on to each tab what it follows.
 */

/** What a tab follows. */
export interface Topic {
	readonly log: "updates" | "events";
	/** Address of the service, without a slash at its end. */
	readonly baseUrl: string;
	readonly key: string | undefined;
	/** Empty: all conversations. */
	readonly conversationId: string;
	/** Kinds of events that are left out. */
	readonly kindsNot: readonly string[];
}

/** What a tab receives: how far its topic has come, with an entry if it has one, or why it ends. */
export type HubMessage =
	| { readonly sequence: bigint; readonly entry?: Uint8Array }
	| { readonly failed: { readonly code: Code; readonly text: string } };

/** Streams of entries, open or to be opened. More would leave no connection for other requests. */
const MOST_STREAMS = 4;
/** Milliseconds without a message, not even a heartbeat, after which a stream counts as dead. */
const MAX_SILENCE = 60_000;
/** Milliseconds after which a subscription learns how far its stream has come although it has no entry. */
const PROGRESS_INTERVAL = 5_000;

interface Subscription {
	readonly topic: Topic;
	readonly receive: (message: HubMessage) => void;
	/** Sequence up to which it has everything. */
	position: bigint;
	/** When it received something last. */
	heard: number;
}

/** An entry of a stream, as far as it decides who receives it. */
export interface Entry {
	/** Empty: it concerns all conversations. */
	readonly conversationId: string;
	readonly kind: string;
	readonly bytes: () => Uint8Array;
}

interface Stream {
	readonly abort: AbortController;
	/** Sequence after which it started. */
	readonly start: bigint;
	position: bigint;
	isLive: boolean;
	subscriptions: readonly Subscription[];
}

/** Opens the stream of a topic after a sequence. */
export type Open = (
	topic: Topic,
	after: bigint,
	signal: AbortSignal,
) => AsyncIterable<{ sequence: bigint; entry?: Entry }>;

/** Shares streams among subscriptions. */
export class Hub {
	readonly #open: Open;
	readonly #subscriptions = new Set<Subscription>();
	readonly #streams = new Map<string, Stream>();
	#arranging = false;

	constructor(open: Open = openStream) {
		this.#open = open;
	}

	/**
	 * Follows a topic. A failure is the last message.
	 *
	 * @param after sequence after which to start
	 * @returns a function that ends the subscription
	 */
	subscribe(topic: Topic, after: bigint, receive: (message: HubMessage) => void): () => void {
		const subscription = { topic, receive, position: after, heard: 0 };
		this.#subscriptions.add(subscription);
		this.#rearrange();
		return () => {
			this.#subscriptions.delete(subscription);
			this.#rearrange();
		};
	}

	/** Tabs come and go together, so the streams are arranged once for all that do so now. */
	#rearrange(): void {
		if (this.#arranging) return;
		this.#arranging = true;
		setTimeout(() => {
			this.#arranging = false;
			this.#arrange();
		}, 0);
	}

	/** Opens the streams that the subscriptions need, and ends the others. */
	#arrange(): void {
		const wanted = streamsFor([...this.#subscriptions]);
		for (const [name, { abort }] of this.#streams) {
			if (wanted.has(name)) continue;
			this.#streams.delete(name);
			abort.abort();
		}
		for (const [name, { topic, subscriptions }] of wanted) {
			const present = this.#streams.get(name);
			const first = leastPosition(subscriptions);
			if (present !== undefined) {
				const joined = subscriptions.filter((one) => !present.subscriptions.includes(one));
				// One that lacks what the stream has passed already needs a stream that starts earlier.
				if (joined.every(({ position }) => position >= present.position)) {
					present.subscriptions = subscriptions;
					if (present.isLive) for (const one of joined) tell(one, present.position);
					continue;
				}
				present.abort.abort();
			}
			const abort = new AbortController();
			const stream: Stream = { abort, start: first, position: first, isLive: false, subscriptions };
			this.#streams.set(name, stream);
			void this.#run(name, topic, stream);
		}
	}

	async #run(name: string, topic: Topic, stream: Stream): Promise<void> {
		const { signal } = stream.abort;
		let silence: ReturnType<typeof setTimeout> | undefined;
		const silent = new AbortController();
		const heard = (): void => {
			clearTimeout(silence);
			silence = setTimeout(() => silent.abort(), MAX_SILENCE);
		};
		let error: unknown;
		try {
			heard();
			for await (const { sequence, entry } of this.#open(
				topic,
				stream.start,
				AbortSignal.any([signal, silent.signal]),
			)) {
				if (signal.aborted) break;
				heard();
				stream.isLive = true;
				if (sequence > stream.position) stream.position = sequence;
				deliver(stream, sequence, entry);
			}
		} catch (thrown) {
			error = thrown;
		} finally {
			clearTimeout(silence);
		}
		if (this.#streams.get(name) !== stream) return;
		this.#streams.delete(name);
		const { code, rawMessage: text } =
			error === undefined ? { code: Code.Unavailable, rawMessage: "The stream ended" } : ConnectError.from(error);
		for (const subscription of stream.subscriptions) {
			// What is no longer stored is missed only by those that lack it.
			if (code === Code.OutOfRange && subscription.position > stream.start) continue;
			if (!this.#subscriptions.delete(subscription)) continue;
			subscription.receive({ failed: { code: silent.signal.aborted ? Code.Unavailable : code, text } });
		}
		this.#rearrange();
	}
}

function leastPosition(subscriptions: readonly Subscription[]): bigint {
	const [least = 0n] = subscriptions.map(({ position }) => position).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
	return least;
}

/**
 * Returns the streams that subscriptions need: one for each topic or, if these are too many, one of each log with the
 * entries of all conversations.
 */
function streamsFor(all: readonly Subscription[]) {
	const byTopic = Map.groupBy(all, ({ topic }) => JSON.stringify(topic));
	const isFew = byTopic.size <= MOST_STREAMS;
	const groups = isFew
		? byTopic
		: Map.groupBy(all, ({ topic: { log, baseUrl, key } }) => JSON.stringify({ log, baseUrl, key }));
	const streams = new Map<string, { readonly topic: Topic; readonly subscriptions: readonly Subscription[] }>();
	for (const [name, subscriptions] of groups) {
		const [first] = subscriptions;
		if (first === undefined) continue;
		const kindsNot = first.topic.kindsNot.filter((kind) =>
			subscriptions.every(({ topic }) => topic.kindsNot.includes(kind)),
		);
		const topic = isFew ? first.topic : { ...first.topic, conversationId: "", kindsNot };
		// A stream that leaves out other kinds than before is another one.
		streams.set(isFew ? name : `${name} ${kindsNot.join()}`, { topic, subscriptions });
	}
	return streams;
}

/** Passes a message of a stream on to the subscriptions that have not got it yet. */
function deliver(stream: Stream, sequence: bigint, entry: Entry | undefined): void {
	for (const subscription of stream.subscriptions) {
		const { topic, position, heard } = subscription;
		if (entry !== undefined && sequence <= position) continue;
		if (entry !== undefined && concerns(topic, entry)) {
			subscription.position = sequence;
			subscription.heard = Date.now();
			subscription.receive({ sequence, entry: entry.bytes() });
		} else if (entry === undefined || Date.now() - heard > PROGRESS_INTERVAL) tell(subscription, sequence);
		else subscription.position = sequence;
	}
}

function concerns({ conversationId, kindsNot }: Topic, entry: Entry): boolean {
	const isOfAnother = conversationId !== "" && entry.conversationId !== "" && conversationId !== entry.conversationId;
	return !isOfAnother && !kindsNot.includes(entry.kind);
}

/** Tells a subscription that it has everything up to a sequence. */
function tell(subscription: Subscription, sequence: bigint): void {
	if (sequence > subscription.position) subscription.position = sequence;
	subscription.heard = Date.now();
	subscription.receive({ sequence: subscription.position });
}

async function* openStream(
	{ log, baseUrl, key, conversationId, kindsNot }: Topic,
	after: bigint,
	signal: AbortSignal,
): AsyncGenerator<{ sequence: bigint; entry?: Entry }> {
	const withKey: Interceptor = (next) => (request) => {
		if (key !== undefined) request.header.set("X-Access-Token", key);
		return next(request);
	};
	const transport = createConnectTransport({ baseUrl, useBinaryFormat: true, interceptors: [withKey] });
	const start = { case: "afterSequence" as const, value: after };
	if (log === "updates") {
		const client = createClient(ConversationService, transport);
		for await (const { sequence, content } of client.watchConversationUpdates({ start, conversationId }, { signal })) {
			if (content.case !== "update") yield { sequence };
			else {
				const { value } = content;
				yield {
					sequence,
					entry: {
						// An erasure tells only a digest of the id.
						conversationId: value.change === UpdateChange.ERASED ? "" : value.conversationId,
						kind: "",
						bytes: () => toBinary(ConversationUpdateSchema, value),
					},
				};
			}
		}
	} else {
		const client = createClient(ConversationEventService, transport);
		const filter = { kindsNot: [...kindsNot] };
		for await (const { sequence, content } of client.watchConversationEvents(
			{ start, conversationId, filter },
			{ signal },
		)) {
			if (content.case !== "event") yield { sequence };
			else {
				const { value } = content;
				yield {
					sequence,
					entry: {
						conversationId: value.conversationId,
						kind: value.event?.kind ?? "",
						bytes: () => toBinary(ConversationEventEntrySchema, value),
					},
				};
			}
		}
	}
}
