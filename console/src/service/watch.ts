import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { computed, signal } from "@preact/signals";
import {
	type ConversationEventEntry,
	ConversationEventEntrySchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	type ConversationUpdate,
	ConversationUpdateSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { Hub, type HubMessage, type Topic } from "./hub.ts";
import { BASE_URL, KEY_REFUSED, problemOf } from "./service.ts";
import { accessKey, signOut } from "./session.ts";
import { type HubAnswer, type HubRequest, WORKER_ADDRESS } from "./shared-worker.ts";

/** What a watch does: it connects for the first time, receives messages, or connects again. */
export type WatchState = "connecting" | "live" | "lost";

/** What each open watch does now. */
const open = signal<ReadonlyMap<object, WatchState>>(new Map());

/** Whether the page shows the present state: what all open watches do together. Undefined if there is no watch. */
export const live = computed((): WatchState | undefined => {
	const states = new Set(open.value.values());
	return (["lost", "connecting", "live"] as const).find((state) => states.has(state));
});

function setOpen(watch: object, state: WatchState | undefined): void {
	const next = new Map(open.value);
	if (state === undefined) next.delete(watch);
	else next.set(watch, state);
	open.value = next;
}

/** Milliseconds between two attempts to connect. */
const RETRY_AFTER = 1_000;
/** Milliseconds without a message after which the shared worker counts as dead. It notices dead streams itself before. */
const MAX_SILENCE = 75_000;

/** Least milliseconds between two deliveries, because each one draws the page anew. */
const DELIVERY_INTERVAL = 100;

/** What a page does with a watch. */
interface Follower<Entry> {
	/** Sequence after which to start. */
	readonly from: bigint;
	/** Receives the entries that arrived together. */
	readonly onEntries: (entries: readonly Entry[]) => void;
	/** Called when the entries after the sequence are no longer stored; the page has to load its data again. */
	readonly onLost: () => void;
}

/**
 * Follows the updates of a conversation or, without an id, of all. See {@link follow}.
 *
 * @returns a function that ends the watch
 */
export function followUpdates(conversationId: string, follower: Follower<ConversationUpdate>): () => void {
	return follow({ log: "updates", conversationId, kindsNot: [] }, ConversationUpdateSchema, follower);
}

/**
 * Follows the events of a conversation or, without an id, of all. See {@link follow}.
 *
 * @param kindsNot kinds of events that are left out
 * @returns a function that ends the watch
 */
export function followEvents(
	conversationId: string,
	kindsNot: readonly string[],
	follower: Follower<ConversationEventEntry>,
): () => void {
	return follow({ log: "events", conversationId, kindsNot }, ConversationEventEntrySchema, follower);
}

/**
 * Follows a log until it is stopped. After an interruption it goes on behind the last sequence that arrived, so that
 * nothing is missed. A page that is hidden does not follow, because it draws nothing.
 */
function follow<Desc extends DescMessage>(
	part: Omit<Topic, "key" | "baseUrl">,
	schema: Desc,
	{ from, onEntries, onLost }: Follower<MessageShape<Desc>>,
): () => void {
	const watch = {};
	const stop = new AbortController();
	let waiting: MessageShape<Desc>[] = [];
	let scheduled = false;
	let delivered = 0;
	const deliver = (): void => {
		scheduled = false;
		delivered = performance.now();
		const entries = waiting;
		waiting = [];
		if (!stop.signal.aborted && entries.length > 0) onEntries(entries);
	};
	const run = async (): Promise<void> => {
		let after = from;
		while (!stop.signal.aborted) {
			await shown();
			if (stop.signal.aborted) break;
			const topic = { ...part, baseUrl: BASE_URL, key: accessKey.value };
			const error = await followOnce(topic, after, stop.signal, (sequence, bytes) => {
				setOpen(watch, "live");
				after = sequence;
				if (bytes === undefined) return;
				waiting.push(fromBinary(schema, bytes));
				if (scheduled) return;
				scheduled = true;
				const wait = delivered + DELIVERY_INTERVAL - performance.now();
				if (wait > 0) setTimeout(() => requestAnimationFrame(deliver), wait);
				else requestAnimationFrame(deliver);
			});
			if (stop.signal.aborted) break;
			setOpen(watch, "lost");
			if (error?.code === Code.OutOfRange) {
				await new Promise((resolve) => setTimeout(resolve, RETRY_AFTER));
				if (!stop.signal.aborted) onLost();
				break;
			}
			if (error !== undefined && problemOf(error).kind === "key") signOut(KEY_REFUSED);
			if (!document.hidden) await new Promise((resolve) => setTimeout(resolve, RETRY_AFTER));
		}
	};
	setOpen(watch, "connecting");
	void run().finally(() => setOpen(watch, undefined));
	return () => {
		stop.abort();
		setOpen(watch, undefined);
	};
}

/**
 * Follows a topic until it fails, the page is hidden, or the watch is stopped.
 *
 * @returns the failure, if it is one
 */
async function followOnce(
	topic: Topic,
	after: bigint,
	stop: AbortSignal,
	receive: (sequence: bigint, entry: Uint8Array | undefined) => void,
): Promise<ConnectError | undefined> {
	const attempt = new AbortController();
	const { signal } = attempt;
	const end = (): void => attempt.abort();
	stop.addEventListener("abort", end, { signal });
	document.addEventListener("visibilitychange", () => document.hidden && end(), { signal });
	let silence: ReturnType<typeof setTimeout> | undefined;
	const heard = (): void => {
		clearTimeout(silence);
		silence = setTimeout(() => {
			forgetLink();
			end();
		}, MAX_SILENCE);
	};
	try {
		return await new Promise((resolve) => {
			heard();
			const close = subscribe(topic, after, (message) => {
				if (signal.aborted) return;
				heard();
				if ("failed" in message) resolve(new ConnectError(message.failed.text, message.failed.code));
				else receive(message.sequence, message.entry);
			});
			signal.addEventListener("abort", () => {
				close();
				resolve(undefined);
			});
		});
	} finally {
		clearTimeout(silence);
		attempt.abort();
	}
}

type Subscribe = Hub["subscribe"];

/** The way to the streams: the shared worker, or a hub of this page where there is none. */
let link: Subscribe | undefined;
/** Whether the browser cannot run the worker. */
let hasNoWorker = typeof SharedWorker === "undefined";

function subscribe(...topic: Parameters<Subscribe>): () => void {
	link ??= hasNoWorker ? linkToOwnHub() : linkToWorker();
	return link(...topic);
}

/** Has the next subscription find a way of its own. */
function forgetLink(): void {
	link = undefined;
}

function linkToOwnHub(): Subscribe {
	const hub = new Hub();
	return (...topic) => hub.subscribe(...topic);
}

function linkToWorker(): Subscribe {
	const receivers = new Map<number, (message: HubMessage) => void>();
	let count = 0;
	const worker = new SharedWorker(WORKER_ADDRESS, { type: "module", name: "watches" });
	worker.addEventListener("error", () => {
		hasNoWorker = true;
		forgetLink();
		for (const receive of receivers.values())
			receive({ failed: { code: Code.Unavailable, text: "The worker cannot be started" } });
	});
	const ask = (request: HubRequest): void => worker.port.postMessage(request);
	worker.port.addEventListener("message", ({ data }: MessageEvent<HubAnswer>) => {
		receivers.get(data.subscription)?.(data.message);
	});
	worker.port.start();
	return (topic, after, receive) => {
		count += 1;
		const open = count;
		receivers.set(open, receive);
		ask({ open, topic, after });
		return () => {
			receivers.delete(open);
			ask({ close: open });
		};
	};
}

/** Waits until the page can be seen. */
async function shown(): Promise<void> {
	while (document.hidden)
		await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
