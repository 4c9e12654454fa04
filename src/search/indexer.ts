import { randomUUID } from "node:crypto";
import { setTimeout as delay, setImmediate } from "node:timers/promises";
import { isDataLoss } from "../errors.ts";
import type { EventFormat } from "../events/event-format.ts";
import type { EventCondition } from "../store/condition.ts";
import type { StoredEvent } from "../store/entries.ts";
import { claimFor } from "../store/session.ts";
import type { Store } from "../store/store.ts";
import { type EventWords, NO_PROGRESS } from "../store/text-index.ts";
import { criticResultOf, eventTexts, KINDS_WITHOUT_TEXT } from "./event-texts.ts";
import { indexWords, wordsOf } from "./tokenizer.ts";

/**
 * Version of the rules by which texts, words and results of critics are taken from events. Raise it when they change, and let the
 * view of conversations derive the words of titles anew.
 */
const INDEX_RULES = 4;

/** Maximum number of events, and of bytes of their texts, of one step, so that appends wait only for a short commit. */
const EVENTS = { limit: 200, maxBytes: 2 ** 20 };
/** Milliseconds of work on events after which requests that wait are answered. */
const MAX_TURN = 1;
/** Maximum bytes of the words of an event. PostgreSQL keeps at most 1 MiB of them; only crafted texts have more. */
const MAX_WORD_BYTES = 1_000_000;
/** Milliseconds for which a process claims the index. */
const CLAIM = 15_000;
const CONDITIONS: readonly EventCondition[] = [{ kind: "none_of", field: "kind", values: KINDS_WITHOUT_TEXT }];

/** Pause after a step as a multiple of its duration, while the service is busy. It leaves the machine to the ingest. */
const BUSY_FACTOR = 4;
/** Milliseconds for which new events are collected. */
const COLLECT = 300;
/** Milliseconds after which the indexer looks again without being told: whether another process has ended, say. */
const INTERVAL = 2_000;

interface IndexerOptions extends IndexedStore {
	/** Returns whether the service has much to do. */
	readonly isBusy: () => boolean;
	/** Called with each failure, after which the indexer tries again. */
	readonly onError: (error: unknown) => void;
}

interface IndexedStore {
	readonly store: Pick<Store, "events" | "claim" | "readIndexProgress" | "writeIndexStep">;
	readonly format: Pick<EventFormat, "open" | "read">;
}

/**
 * Keeps the index of search up to date until the signal fires. It follows the events, from where an earlier run ended. Of
 * several processes with one database, one does so at a time.
 */
export async function indexUntilStopped(options: IndexerOptions, signal: AbortSignal): Promise<void> {
	const { store, onError, isBusy } = options;
	const indexer = new TextIndexer(options);
	let wake = () => {};
	const unsubscribe = store.events.subscribe(() => wake());
	signal.addEventListener("abort", () => wake(), { once: true });
	while (!signal.aborted) {
		const woken = new Promise<void>((resolve) => {
			wake = resolve;
		});
		const began = performance.now();
		const hasMore = await indexer.step().catch((error: unknown) => {
			onError(error);
			return false;
		});
		if (hasMore) await wait(isBusy() ? (performance.now() - began) * BUSY_FACTOR : 0, signal);
		else {
			const over = new AbortController();
			await Promise.race([woken, wait(INTERVAL, over.signal)]);
			over.abort();
			await wait(COLLECT, signal);
		}
	}
	unsubscribe();
	await indexer.release().catch(onError);
}

/** Writes the index, step by step. */
export class TextIndexer {
	readonly #options: IndexedStore;
	readonly #holder = randomUUID();
	/** Until when this process has claimed the index, in milliseconds of Unix time. */
	#claimedUntil = 0;
	/** Reads the events after those whose words are being written, up to the newest one of then. */
	#ahead: { readonly after: bigint; readonly newest: bigint; readonly found: Promise<StoredEvent[]> } | undefined;

	constructor(options: IndexedStore) {
		this.#options = options;
	}

	/** Claims the index for some milliseconds from now on. Returns whether this process has it. */
	async #claim(milliseconds: number): Promise<boolean> {
		const until = Date.now() + milliseconds;
		const isClaimed = await claimFor(this.#options.store, "index of search", this.#holder, milliseconds);
		this.#claimedUntil = isClaimed ? until : 0;
		return isClaimed;
	}

	/** Lets another process go on at once. */
	async release(): Promise<void> {
		await this.#claim(0);
	}

	/** Writes what comes next. Returns whether there may be more to do at once. */
	async step(): Promise<boolean> {
		const { store } = this.#options;
		// One write for several steps.
		if (this.#claimedUntil < Date.now() + CLAIM / 2 && !(await this.#claim(CLAIM))) return false;
		const progress = await store.readIndexProgress();
		// A newer release writes the index by its own rules.
		if (progress.version > INDEX_RULES) return false;
		if (progress.version < INDEX_RULES) {
			const next = { ...NO_PROGRESS, version: INDEX_RULES };
			await store.writeIndexStep({ expects: progress, next, events: [] });
			return true;
		}
		const { indexed, through, hasMore } = await this.#events(progress.events);
		if (through === progress.events) return false;
		const next = { ...progress, events: through };
		const isWritten = await store.writeIndexStep({ expects: progress, next, events: indexed });
		return hasMore || !isWritten;
	}

	async #events(after: bigint) {
		const { events } = this.#options.store;
		const { newest } = await events.range();
		const indexed: EventWords[] = [];
		if (newest <= after) return { indexed, through: after, hasMore: false };
		const read = (from: bigint) => ({
			after: from,
			newest,
			found: events.list({ after: from, before: newest + 1n, conditions: CONDITIONS, ...EVENTS }),
		});
		const page = this.#ahead?.after === after ? this.#ahead : read(after);
		this.#ahead = undefined;
		const found = await page.found;
		let since = performance.now();
		for (const event of found) {
			const { words, criticResult } = this.#read(event);
			if (words.length > 0 || criticResult !== undefined)
				indexed.push({ sequence: event.sequence, words, criticResult });
			if (performance.now() - since < MAX_TURN) continue;
			// Requests that wait are answered in between.
			await setImmediate();
			since = performance.now();
		}
		const through = found.at(-1)?.sequence ?? page.newest;
		const hasMore = through < newest;
		if (hasMore) {
			this.#ahead = read(through);
			// The next step gets the error.
			this.#ahead.found.catch(() => undefined);
		}
		return { indexed, through, hasMore };
	}

	#read({ conversationId, event }: StoredEvent): Omit<EventWords, "sequence"> {
		if ("unreadable" in event) return { words: [] };
		try {
			const read = this.#options.format.read(conversationId, event);
			const words = new Set(eventTexts(read).flatMap(({ text }) => [...indexWords(wordsOf(text))]));
			return { words: [...atMost(MAX_WORD_BYTES, words)], criticResult: criticResultOf(read) };
		} catch (error) {
			// It cannot be shown either.
			if (isDataLoss(error)) return { words: [] };
			throw error;
		}
	}
}

/** Returns words up to the first one with which their UTF-8 would have more bytes. */
function atMost(bytes: number, words: ReadonlySet<string>): Set<string> {
	const kept = new Set<string>();
	let left = bytes;
	for (const word of words) {
		left -= Buffer.byteLength(word);
		if (left < 0) break;
		kept.add(word);
	}
	return kept;
}

/** Waits; returns early when the signal fires. */
async function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
	await delay(milliseconds, undefined, { signal, ref: false }).catch(() => undefined);
}
