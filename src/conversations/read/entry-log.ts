import type { EventQuery, Log, Store, StoredEvent, StoredUpdate, UpdateQuery } from "../../store/store.ts";
import { recordSize } from "./record-opener.ts";

/** What lists and watches ask of every log. Events are always read whole, so `withRecords` means nothing to their log. */
export type EntryQuery = Pick<UpdateQuery, "after" | "conversationId" | "limit" | "maxBytes" | "withRecords">;

/** An entry of any log. */
export interface LogEntry {
	readonly sequence: bigint;
	readonly conversationId: string;
}

/** A log of the store, as lists and watches read it. `Filter` is what its queries can ask beyond {@link EntryQuery}. */
export interface EntryLog<Entry extends LogEntry, Filter extends object = object> {
	/** What its entries are called at the beginning of a sentence; names its page tokens too. */
	readonly name: "Updates" | "Events";
	readonly log: Log<Entry, EntryQuery & Filter>;
	/** Bytes of what an entry holds that has no bound of its own: its record or text. */
	readonly sizeOf: (entry: Entry) => number;
}

/** The filter of a list of updates. */
export type UpdateFilter = Pick<UpdateQuery, "origin">;

/** The filter of a list of events. */
export type EventFilter = Pick<EventQuery, "conditions">;

/** The log of updates. */
export function updateLog({ updates }: Pick<Store, "updates">): EntryLog<StoredUpdate, UpdateFilter> {
	return { name: "Updates", log: updates, sizeOf: ({ record }) => recordSize(record) };
}

/** The log of events. */
export function eventLog({ events }: Pick<Store, "events">): EntryLog<StoredEvent, EventFilter> {
	return { name: "Events", log: events, sizeOf: ({ event }) => ("unreadable" in event ? 0 : event.text.byteLength) };
}
