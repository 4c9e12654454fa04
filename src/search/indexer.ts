import { randomUUID } from "node:crypto";
import { setTimeout as delay, setImmediate } from "node:timers/promises";
import { isDataLoss } from "../errors.ts";
import type { EventFormat } from "../events/event-format.ts";
import type { EventCondition } from "../store/condition.ts";
import type { StoredEvent } from "../store/entries.ts";
import { claimFor } from "../store/session.ts";
import type { Store } from "../store/store.ts";
import { type EventContent, type EventWords, type IndexProgress, NO_PROGRESS } from "../store/text-index.ts";
import { contentOf, KINDS_WITHOUT_TEXT } from "./event-texts.ts";
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
/** Maximum bytes of what was appended and is not indexed yet. Further events are read from the log. */
const MAX_APPENDED_BYTES = 32 * 2 ** 20;
/** About how many bytes of memory an event takes beside its texts. */
const EVENT_BYTES = 150;
/** Milliseconds for which a process claims the index. */
const CLAIM = 15_000;
const CONDITIONS: readonly EventCondition[] = [{ kind: "none_of", field: "kind", values: KINDS_WITHOUT_TEXT }];

/** Pause after a step as a multiple of its duration, while the service is busy, so that the machine is left to the ingest. */
const BUSY_FACTOR = 16;
/** Number of waiting events from which on the indexer makes no pauses, so that search does not lag much further. */
const MAX_WAITING = 150_000;
/** Milliseconds for which new events are collected. */
const COLLECT = 300;
/** Milliseconds after which the indexer looks again without being told: whether another process has ended, say. */
const INTERVAL = 2_000;

interface IndexerOptions {
	readonly indexer: TextIndexer;
	readonly store: Pick<Store, "events">;
	/** Returns whether the service has much to do. */
	readonly isBusy: () => boolean;
	/** Called with each failure, after which the indexer tries again. */
	readonly onError: (error: unknown) => void;
}

interface IndexedStore {
	readonly store: Pick<Store, "events" | "claim" | "readIndexProgress" | "writeIndexStep">;
	readonly format: Pick<EventFormat, "read">;
}

/**
 * Keeps the index of search up to date until the signal fires. It follows the events, from where an earlier run ended. Of
 * several processes with one database, one does so at a time.
 */
export async function indexUntilStopped(options: IndexerOptions, signal: AbortSignal): Promise<void> {
	const { indexer, store, onError, isBusy } = options;
	let wake = () => {};
	const unsubscribe = store.events.subscribe((_, change) => {
		if (change === "lost") indexer.forget();
		wake();
	});
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

interface IndexedEvent extends EventContent {
	readonly conversationId: string;
	readonly sequence: bigint;
}

/** What is indexed of consecutive events. */
interface Page {
	/** At least those of which something is indexed. */
	readonly events: readonly IndexedEvent[];
	/** The sequence of the last of the events. */
	readonly through: bigint;
}

/** What this process has appended in one batch. */
interface AppendedPage extends Page {
	/** About how many bytes of memory it takes. */
	readonly bytes: number;
}

/** What a step writes. */
interface IndexedPage {
	/** The sequence before the first of the events. */
	readonly after: bigint;
	readonly through: bigint;
	readonly indexed: readonly EventWords[];
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
	/** What the next step writes, if it is known already. */
	#ahead: IndexedPage | undefined;
	/** What this process has appended, by the sequences before the first event of each batch. */
	readonly #appended = new Map<bigint, AppendedPage>();
	/** The bytes of all of its pages. */
	#appendedBytes = 0;
	/** Number of calls of {@link forget}, by which a step knows that there was one meanwhile. */
	#forgotten = 0;

	constructor(options: IndexedStore) {
		this.#options = options;
	}

	/**
	 * Takes what is indexed of events that this process has appended, so that a step need not read them. It takes nothing while it
	 * has {@link MAX_APPENDED_BYTES}, or while another process writes the index.
	 *
	 * @param newest the sequence of the last one; those of the others come just before it
	 */
	add(conversationId: string, newest: bigint, contents: readonly EventContent[]): void {
		if (contents.length === 0 || this.#claimedUntil < Date.now() || this.#appendedBytes > MAX_APPENDED_BYTES) return;
		const after = newest - BigInt(contents.length);
		if (this.#appended.has(after)) return;
		const all = contents.map((content, index) => ({ conversationId, sequence: after + BigInt(index + 1), ...content }));
		const events = all.filter(({ texts, criticResult }) => texts.length > 0 || criticResult !== undefined);
		const bytes = bytesOf(events);
		this.#appended.set(after, { events, through: newest, bytes });
		this.#appendedBytes += bytes;
	}

	/** Forgets what was added, so that the next steps read all events. A step that has not begun to write is given up. */
	forget(): void {
		this.#forgotten += 1;
		this.#known = undefined;
		this.#ahead = undefined;
		this.#appended.clear();
		this.#appendedBytes = 0;
	}

	/** Claims the index for some milliseconds from now on. Returns whether this process has it. */
	async #claim(milliseconds: number): Promise<boolean> {
		const until = Date.now() + milliseconds;
		const isClaimed = await claimFor(this.#options.store, "index of search", this.#holder, milliseconds);
		this.#claimedUntil = isClaimed ? until : 0;
		if (!isClaimed) this.forget();
		return isClaimed;
	}

	/** Lets another process go on at once. */
	async release(): Promise<void> {
		await this.#claim(0);
	}

	/**
	 * Writes what comes next.
	 *
	 * @param limit maximum number of events, of which batches are not divided
	 * @returns about how many events wait to be indexed at once; 0 when none do
	 */
	async step(limit = FEW_EVENTS): Promise<number> {
		const { store } = this.#options;
		const known = this.#known;
		const forgotten = this.#forgotten;
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
		const { events: after } = progress;
		const ahead = this.#ahead?.after === after ? this.#ahead : undefined;
		this.#ahead = undefined;
		const { indexed, through } =
			ahead ?? (await indexedPage(after, this.#takeAppended(after, limit) ?? (await this.#read(after, newest, limit))));
		if (forgotten !== this.#forgotten) return 1;
		const next = { ...progress, events: through };
		const [isWritten, later] = await Promise.all([
			store.writeIndexStep({ expects: progress, next, events: indexed }),
			store.events.range(),
			this.#lookAhead(through, limit),
		]);
		if (!isWritten) return 1;
		const waiting = Number(later.newest - through);
		if (waiting >= FEW_EVENTS && forgotten === this.#forgotten) this.#known = { progress: next, newest: later.newest };
		return waiting;
	}

	/** Prepares the next step, if this process has appended its events, while the one before is written. */
	async #lookAhead(after: bigint, limit: number): Promise<void> {
		// The write is sent in the meantime.
		for (let turn = 0; turn < 3; turn++) await setImmediate();
		const page = this.#takeAppended(after, limit);
		const forgotten = this.#forgotten;
		const ahead = page && (await indexedPage(after, page));
		if (forgotten === this.#forgotten) this.#ahead = ahead;
	}

	/** Takes what this process has appended after a sequence; undefined if the next event is not among it. */
	#takeAppended(after: bigint, limit: number): Page | undefined {
		const events: IndexedEvent[] = [];
		let through = after;
		let bytes = 0;
		// In the order of the log, at least those of one writer. Some may have been read, or indexed by another process.
		for (const [before, page] of this.#appended) {
			if (before > through || events.length >= limit || bytes > MAX_BYTES) break;
			this.#appended.delete(before);
			this.#appendedBytes -= page.bytes;
			if (before < through) continue;
			events.push(...page.events);
			bytes += page.bytes;
			through = page.through;
		}
		return through === after ? undefined : { events, through };
	}

	/** Reads the next events, as far as those that this process has appended. */
	async #read(after: bigint, newest: bigint, limit: number): Promise<Page> {
		const appended = this.#appended.keys().find((before) => before > after) ?? newest;
		const last = appended < newest ? appended : newest;
		const query = { after, before: last + 1n, conditions: CONDITIONS, limit, maxBytes: MAX_BYTES };
		const stored = await this.#options.store.events.list(query);
		const events = await inTurns(stored, (event) => this.#indexedOf(event));
		return { events, through: stored.at(-1)?.sequence ?? last };
	}

	#indexedOf({ conversationId, sequence, event }: StoredEvent): IndexedEvent {
		const nothing = { conversationId, sequence, texts: [] };
		if ("unreadable" in event) return nothing;
		try {
			return { conversationId, sequence, ...contentOf(this.#options.format.read(conversationId, event)) };
		} catch (error) {
			// It cannot be shown either.
			if (isDataLoss(error)) return nothing;
			throw error;
		}
	}
}

/** Returns what a step writes for a page. */
async function indexedPage(after: bigint, { events, through }: Page): Promise<IndexedPage> {
	return { after, through, indexed: (await inTurns(events, withWords)).filter(isIndexed) };
}

function isIndexed({ words, criticResult }: EventWords): boolean {
	return words !== "" || criticResult !== undefined;
}

/** Returns about how many bytes of memory the events of a batch take. */
function bytesOf(events: readonly IndexedEvent[]): number {
	const strings = events.flatMap(({ texts, criticResult }) => [...texts, criticResult?.comment ?? ""]);
	// A UTF-16 code unit takes one byte or two.
	return strings.reduce((bytes, { length }) => bytes + 2 * length, EVENT_BYTES * (events.length + 1));
}

function withWords({ conversationId, sequence, texts, criticResult }: IndexedEvent): EventWords {
	const words = new Set(texts.flatMap((text) => [...indexWords(wordsOf(text))]));
	return { conversationId, sequence, words: atMost(MAX_WORD_BYTES, words), criticResult };
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

/** Returns what `make` returns of each one. Requests that wait are answered in between. */
async function inTurns<Of, Made>(all: readonly Of[], make: (one: Of) => Made): Promise<Made[]> {
	const made: Made[] = [];
	let since = performance.now();
	for (const one of all) {
		made.push(make(one));
		if (performance.now() - since < MAX_TURN) continue;
		await setImmediate();
		since = performance.now();
	}
	return made;
}

/** Waits; returns early when the signal fires. */
async function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
	await delay(milliseconds, undefined, { signal, ref: false }).catch(() => undefined);
}
