import { randomUUID } from "node:crypto";
import { setTimeout as delay, setImmediate } from "node:timers/promises";
import { isDataLoss } from "../errors.ts";
import type { EventFormat } from "../events/event-format.ts";
import type { EventCondition } from "../store/condition.ts";
import type { StoredEvent } from "../store/entries.ts";
import { claimFor } from "../store/session.ts";
import type { Store } from "../store/store.ts";
import { type EventWords, type IndexProgress, NO_PROGRESS } from "../store/text-index.ts";
import { criticResultOf, eventTexts, KINDS_WITHOUT_TEXT } from "./event-texts.ts";
import { indexWords, wordsOf } from "./tokenizer.ts";

/**
 * Version of the rules by which texts, words and results of critics are taken from events. Raise it when they change, and let the
 * view of conversations derive the words of titles anew.
 */
const INDEX_RULES = 4;

/** Maximum number of events that are read together while the service is busy, so that appends wait only for a short commit. */
const FEW_EVENTS = 100;
/** Maximum number of events that are read together at other times. */
const MANY_EVENTS = 500;
/** Maximum number of bytes of the texts of a step. */
const MAX_BYTES = 2 ** 20;
/** Milliseconds of work on events after which requests that wait are answered. */
const MAX_TURN = 1;
/** Maximum bytes of the words of an event. PostgreSQL keeps at most 1 MiB of them; only crafted texts have more. */
const MAX_WORD_BYTES = 1_000_000;
/** Milliseconds for which a process claims the index. */
const CLAIM = 15_000;
const CONDITIONS: readonly EventCondition[] = [{ kind: "none_of", field: "kind", values: KINDS_WITHOUT_TEXT }];

/** Pause after a step as a multiple of its duration, while the service is busy, so that the machine is left to the ingest. */
const BUSY_FACTOR = 8;
/** Number of waiting events from which on the indexer makes no pauses, so that search does not lag much further. */
const MAX_WAITING = 150_000;
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
		const waiting = await indexer.step(isBusy() ? FEW_EVENTS : MANY_EVENTS).catch((error: unknown) => {
			onError(error);
			return 0;
		});
		if (waiting >= FEW_EVENTS) {
			const pauses = isBusy() && waiting < MAX_WAITING;
			if (pauses) await wait(Math.min((performance.now() - began) * BUSY_FACTOR, CLAIM / 3), signal);
			continue;
		}
		if (waiting === 0) {
			const over = new AbortController();
			await Promise.race([woken, wait(INTERVAL, over.signal)]);
			over.abort();
		}
		await wait(COLLECT, signal);
	}
	unsubscribe();
	await indexer.release().catch(onError);
}

/** Events that were read. */
interface Found {
	readonly events: readonly StoredEvent[];
	/** The sequence through which all events with texts were read. */
	readonly through: bigint;
}

/** Words of events. */
interface Page extends Pick<Found, "through"> {
	readonly indexed: readonly EventWords[];
	/** The events after those; undefined if there were none when they were read. */
	readonly next: Promise<Found> | undefined;
}

/** Writes the index, step by step. */
export class TextIndexer {
	readonly #options: IndexedStore;
	readonly #holder = randomUUID();
	/** Until when this process has claimed the index, in milliseconds of Unix time. */
	#claimedUntil = 0;
	/**
	 * The progress that the last step wrote, and the newest event then, while many events wait. Another process can let the
	 * index begin anew.
	 */
	#known: { readonly progress: IndexProgress; readonly newest: bigint } | undefined;
	/** The words after those that are being written. */
	#ahead: { readonly after: bigint; readonly page: Promise<Page> } | undefined;

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

	/**
	 * Writes what comes next.
	 *
	 * @param limit maximum number of events
	 * @returns about how many events wait to be indexed at once; 0 when none do
	 */
	async step(limit = FEW_EVENTS): Promise<number> {
		const { store } = this.#options;
		const known = this.#known;
		this.#known = undefined;
		// One write for several steps.
		if (this.#claimedUntil < Date.now() + CLAIM / 2 && !(await this.#claim(CLAIM))) return 0;
		const progress = known?.progress ?? (await store.readIndexProgress());
		// A newer release writes the index by its own rules.
		if (progress.version > INDEX_RULES) return 0;
		if (progress.version < INDEX_RULES) {
			const next = { ...NO_PROGRESS, version: INDEX_RULES };
			await store.writeIndexStep({ expects: progress, next, events: [] });
			return 1;
		}
		const newest = known?.newest ?? (await store.events.range()).newest;
		if (newest <= progress.events) return 0;
		const { indexed, through } = await this.#next(progress.events, newest, limit);
		const next = { ...progress, events: through };
		const [isWritten, later] = await Promise.all([
			store.writeIndexStep({ expects: progress, next, events: indexed }),
			store.events.range(),
		]);
		if (!isWritten) return 1;
		const waiting = Number(later.newest - through);
		if (waiting >= FEW_EVENTS) this.#known = { progress: next, newest: later.newest };
		return waiting;
	}

	/** Returns the words of the next events, and begins to take those after them. */
	async #next(after: bigint, newest: bigint, limit: number): Promise<Page> {
		const ahead = this.#ahead?.after === after ? this.#ahead.page : undefined;
		// Before the wait, so that a step after a failure reads anew.
		this.#ahead = undefined;
		const page = await (ahead ?? this.#page(newest, limit, this.#list(after, newest, limit)));
		const { through, next } = page;
		if (through < newest)
			this.#ahead = { after: through, page: this.#page(newest, limit, next ?? this.#list(through, newest, limit)) };
		// The next step gets the error.
		this.#ahead?.page.catch(() => undefined);
		return page;
	}

	/** Returns the words of events, and begins to read the next ones up to a sequence. */
	async #page(newest: bigint, limit: number, found: Promise<Found>): Promise<Page> {
		const { events, through } = await found;
		const next = through < newest ? this.#list(through, newest, limit) : undefined;
		next?.catch(() => undefined);
		const indexed: EventWords[] = [];
		let since = performance.now();
		for (const event of events) {
			const { words, criticResult } = this.#read(event);
			const { conversationId, sequence } = event;
			if (words !== "" || criticResult !== undefined) indexed.push({ conversationId, sequence, words, criticResult });
			if (performance.now() - since < MAX_TURN) continue;
			// Requests that wait are answered in between.
			await setImmediate();
			since = performance.now();
		}
		return { indexed, through, next };
	}

	async #list(after: bigint, newest: bigint, limit: number): Promise<Found> {
		const query = { after, before: newest + 1n, conditions: CONDITIONS, limit, maxBytes: MAX_BYTES };
		const events = await this.#options.store.events.list(query);
		return { events, through: events.at(-1)?.sequence ?? newest };
	}

	#read({ conversationId, event }: StoredEvent): Pick<EventWords, "words" | "criticResult"> {
		if ("unreadable" in event) return { words: "" };
		try {
			const read = this.#options.format.read(conversationId, event);
			const words = new Set(eventTexts(read).flatMap(({ text }) => [...indexWords(wordsOf(text))]));
			return { words: atMost(MAX_WORD_BYTES, words), criticResult: criticResultOf(read) };
		} catch (error) {
			// It cannot be shown either.
			if (isDataLoss(error)) return { words: "" };
			throw error;
		}
	}
}

/** Returns words, separated by spaces, up to the first one with which their UTF-8 would have more bytes. */
function atMost(bytes: number, words: ReadonlySet<string>): string {
	const all = [...words];
	const text = all.join(" ");
	// A UTF-16 code unit takes at most three bytes.
	if (text.length * 3 <= bytes) return text;
	let left = bytes;
	const end = all.findIndex((word) => {
		left -= Buffer.byteLength(word);
		return left < 0;
	});
	return end < 0 ? text : all.slice(0, end).join(" ");
}

/** Waits; returns early when the signal fires. */
async function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
	await delay(milliseconds, undefined, { signal, ref: false }).catch(() => undefined);
}
