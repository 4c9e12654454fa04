import type { KeyObject } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { EventViews } from "../../../src/conversations/read/event-view.ts";
import { ListConversationEvents } from "../../../src/conversations/read/events.ts";
import { PageTokens } from "../../../src/conversations/read/page-token.ts";
import { EventFormat } from "../../../src/events/event-format.ts";
import { eventMeets } from "../../../src/store/event-condition.ts";
import type { EventQuery, Log, RangeQuery, SequenceRange, StoredEvent } from "../../../src/store/store.ts";
import { format } from "./reading.ts";

/** An event with members of its kind over those that all events have. */
export function event(id: string, members: JsonObject = {}): JsonObject {
	return { id, timestamp: "2026-11-21T08:55:31", source: "agent", kind: "MessageEvent", parent_id: null, ...members };
}

/** The read handlers of events over a log in memory. */
export class EventReading {
	readonly store: { readonly events: MemoryEvents };
	readonly views: EventViews;
	readonly list: ListConversationEvents;
	/** Events that could not be read. */
	readonly unreadable: bigint[] = [];
	readonly #format: EventFormat;

	/** @param keys encryption keys; with none, secrets are stored redacted */
	constructor(keys: readonly KeyObject[] = []) {
		this.store = { events: new MemoryEvents() };
		this.#format = new EventFormat(format, keys, { timeZone: "UTC" });
		this.views = new EventViews(this.#format, ({ sequence }) => this.unreadable.push(sequence));
		this.list = new ListConversationEvents(this.store, this.views, new PageTokens([Buffer.alloc(32, 1)]));
	}

	/** Keeps a batch of events and gives the sequence of the last one. */
	keep(conversationId: string, ...events: JsonObject[]): bigint {
		const batch = this.#format.parse(conversationId, Buffer.from(JSON.stringify(events)));
		const { receivedAt } = batch;
		return this.store.events.append(
			batch.events.map(({ happenedAt, kind, source, text, secrets, redactionVersion }) => {
				const event = { text, secrets, redactionVersion };
				return { conversationId, receivedAt, happenedAt, kind, source, event };
			}),
		);
	}
}

/** A log of events in memory. */
export class MemoryEvents implements Log<StoredEvent, EventQuery> {
	readonly queries: EventQuery[] = [];
	#events: StoredEvent[] = [];
	#newest = 0n;
	readonly #removals: { readonly conversationId: string; readonly sequence: bigint }[] = [];
	readonly #listeners = new Set<(newest: bigint) => void>();

	append(events: readonly Omit<StoredEvent, "sequence">[]): bigint {
		for (const event of events) {
			this.#newest += 1n;
			this.#events.push({ ...event, sequence: this.#newest });
		}
		for (const listener of this.#listeners) listener(this.#newest);
		return this.#newest;
	}

	async list(query: EventQuery): Promise<StoredEvent[]> {
		this.queries.push(query);
		const { after, conversationId, conditions = [], limit, maxBytes = Number.POSITIVE_INFINITY } = query;
		const found: StoredEvent[] = [];
		let bytes = 0;
		for (const stored of this.#events) {
			if (stored.sequence <= after || !eventMeets(conditions, stored)) continue;
			if (conversationId !== undefined && stored.conversationId !== conversationId) continue;
			bytes += "unreadable" in stored.event ? 0 : stored.event.text.byteLength;
			if (found.length === limit || (found.length > 0 && bytes > maxBytes)) break;
			found.push(stored);
		}
		return found;
	}

	async range({ conversationId, afterRemoval = 0n }: RangeQuery = {}): Promise<SequenceRange> {
		const removed = this.#removals
			.slice(Number(afterRemoval))
			.filter((removal) => conversationId === undefined || removal.conversationId === conversationId);
		const prunedThrough = removed.at(-1)?.sequence ?? 0n;
		return { newest: this.#newest, prunedThrough, lastRemoval: BigInt(this.#removals.length) };
	}

	subscribe(listener: (newest: bigint) => void): () => void {
		this.#listeners.add(listener);
		return () => {
			this.#listeners.delete(listener);
		};
	}

	/** How many listen. */
	get listeners(): number {
		return this.#listeners.size;
	}

	/** Removes the events through a sequence. */
	pruneThrough(sequence: bigint): void {
		this.#removals.push(...this.#events.filter((event) => event.sequence <= sequence));
		this.#events = this.#events.filter((event) => event.sequence > sequence);
	}

	/** Lets an event be one that the disk has damaged. */
	damage(sequence: bigint): void {
		this.#events = this.#events.map((stored) =>
			stored.sequence === sequence ? { ...stored, event: { unreadable: "the disk" } } : stored,
		);
	}
}
