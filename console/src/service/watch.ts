import { Code, ConnectError } from "@connectrpc/connect";
import { computed, signal } from "@preact/signals";
import { KEY_REFUSED, problemOf } from "./service.ts";
import { signOut } from "./session.ts";

/** What a watch does: it connects for the first time, receives messages, or connects again. */
export type WatchState = "connecting" | "live" | "lost";

/** What each open watch does now. */
const open = signal<ReadonlyMap<string, WatchState>>(new Map());

/** Whether the page shows the present state: what all open watches do together. Undefined if there is no watch. */
export const live = computed((): WatchState | undefined => {
	const states = new Set(open.value.values());
	return (["lost", "connecting", "live"] as const).find((state) => states.has(state));
});

function setOpen(name: string, state: WatchState | undefined): void {
	const next = new Map(open.value);
	if (state === undefined) next.delete(name);
	else next.set(name, state);
	open.value = next;
}

/** A message of a watch: how far the stream has come, and perhaps an entry. */
interface WatchMessage<Entry> {
	readonly sequence: bigint;
	readonly entry: Entry | undefined;
}

/** Milliseconds between two attempts to connect. */
const RETRY_AFTER = 1_000;
/** Milliseconds without a message, not even a heartbeat, after which a stream counts as dead. */
const MAX_SILENCE = 60_000;

/** Least milliseconds between two deliveries, because each one draws the page anew. */
const DELIVERY_INTERVAL = 100;

/**
 * Follows a watch until it is stopped. After an interruption it goes on behind the last sequence that arrived, so that
 * nothing is missed. While the page is hidden the watch is closed: over HTTP/1.1 a browser opens six connections to a
 * service, and the watches of hidden tabs would use them up.
 *
 * @param name name of the watch, unique among the open ones
 * @param from sequence after which to start
 * @param start opens the stream after a sequence
 * @param onEntries receives the entries that arrived together
 * @param onLost called when the entries after the sequence are no longer stored; the page has to load its data again
 * @returns a function that ends the watch
 */
export function follow<Entry>(
	name: string,
	from: bigint,
	start: (after: bigint, signal: AbortSignal) => AsyncIterable<WatchMessage<Entry>>,
	onEntries: (entries: readonly Entry[]) => void,
	onLost: () => void,
): () => void {
	const stop = new AbortController();
	let waiting: Entry[] = [];
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
			const attempt = new AbortController();
			const hide = (): void => {
				if (document.hidden) attempt.abort();
			};
			document.addEventListener("visibilitychange", hide);
			let silence: ReturnType<typeof setTimeout> | undefined;
			const heard = (): void => {
				clearTimeout(silence);
				silence = setTimeout(() => attempt.abort(), MAX_SILENCE);
			};
			try {
				heard();
				for await (const { sequence, entry } of start(after, AbortSignal.any([stop.signal, attempt.signal]))) {
					heard();
					setOpen(name, "live");
					after = sequence;
					if (entry === undefined) continue;
					waiting.push(entry);
					if (!scheduled) {
						scheduled = true;
						const wait = delivered + DELIVERY_INTERVAL - performance.now();
						if (wait > 0) setTimeout(() => requestAnimationFrame(deliver), wait);
						else requestAnimationFrame(deliver);
					}
				}
			} catch (error) {
				if (stop.signal.aborted) break;
				if (problemOf(error).kind === "key") signOut(KEY_REFUSED);
				if (ConnectError.from(error).code === Code.OutOfRange) {
					setOpen(name, "lost");
					await new Promise((resolve) => setTimeout(resolve, RETRY_AFTER));
					if (!stop.signal.aborted) onLost();
					break;
				}
			} finally {
				clearTimeout(silence);
				document.removeEventListener("visibilitychange", hide);
			}
			if (stop.signal.aborted) break;
			setOpen(name, "lost");
			if (!document.hidden) await new Promise((resolve) => setTimeout(resolve, RETRY_AFTER));
		}
	};
	setOpen(name, "connecting");
	void run().finally(() => {
		// The name of a stopped watch may belong to its successor.
		if (!stop.signal.aborted) setOpen(name, undefined);
	});
	return () => {
		stop.abort();
		setOpen(name, undefined);
	};
}

/** Waits until the page can be seen. */
async function shown(): Promise<void> {
	while (document.hidden)
		await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
