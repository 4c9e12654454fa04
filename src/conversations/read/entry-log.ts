import type { EventQuery, StoredEvent } from "../../store/events.ts";
import type { SequenceLog } from "../../store/sequence-log.ts";
import type { Store } from "../../store/store.ts";
import type { StoredUpdate, UpdateQuery } from "../../store/updates.ts";
import { recordSize } from "./record-opener.ts";

/** A query that every log supports. The log of events ignores `withRecords`: events are always read whole. */
export type EntryQuery = Pick<UpdateQuery, "after" | "conversationId" | "owner" | "limit" | "maxBytes" | "withRecords">;

/** An entry of any log. */
export interface LogEntry {
	readonly sequence: bigint;
	readonly conversationId: string;
	/** Owner of the conversation; undefined for none. */
	readonly owner: string | undefined;
}

/** A log of the store, as lists and watches read it. `Filter` adds the filter of its queries to {@link EntryQuery}. */
export interface EntryLog<Entry extends LogEntry, Filter extends object = object> {
	/** Plural name of its entries, as it begins a sentence. It is also the name of the list in page tokens. */
	readonly name: "Updates" | "Events";
	readonly log: SequenceLog<Entry, EntryQuery & Filter>;
	/** Returns the bytes of the part of an entry that has no limit of its own: its record or text. */
	readonly sizeOf: (entry: Entry) => number;
}

/** The filter of a list of updates. */
export type UpdateFilter = Pick<UpdateQuery, "origin">;

/** The filter of a list of events. */
export type EventFilter = Pick<EventQuery, "conditions">;

/** Returns the log of updates. */
export function updateLog({ updates }: Pick<Store, "updates">): EntryLog<StoredUpdate, UpdateFilter> {
	return { name: "Updates", log: updates, sizeOf: ({ record }) => recordSize(record) };
}

/** Returns the log of events. */
export function eventLog({ events }: Pick<Store, "events">): EntryLog<StoredEvent, EventFilter> {
	return { name: "Events", log: events, sizeOf: ({ event }) => ("unreadable" in event ? 0 : event.text.byteLength) };
}
