import { randomBytes } from "node:crypto";
import { clone } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { tooManyValues } from "../record/json/exact-json.ts";
import { encodeDelta, mergeDeltas, mergeProtected, mergeRecord } from "../record/record-delta.ts";
import type { RecordFormat } from "../record/record-format.ts";
import type { RecordVault } from "../record/secrets/record-vault.ts";
import { encodeSummary, SUMMARY_MEMBERS, summarize } from "../record/summary.ts";
import { hasTooManyFields, MIN_SIZE_OF_TOO_MANY_FIELDS } from "../record/validation/message-size.ts";
import type { EventEffect, NewEvents, ProtectedEvent, RecordState, RecordVersion } from "../store/entries.ts";
import { factsOf } from "../store/head.ts";
import type { StoredRecord } from "../store/values.ts";
import {
	applyUpdates,
	firstRecord,
	type OpenRecord,
	type RefusedMember,
	type ReportTimes,
	violationsOf,
} from "./apply-updates.ts";
import type { EventFormat, ParsedEvents } from "./event-format.ts";
import { STATE_UPDATE, type StateUpdate } from "./state-update.ts";

/** The record to which state updates are applied. Times are microseconds since the Unix epoch. */
export interface CurrentRecord extends Pick<RecordState, "memberTimes" | "postedAt"> {
	/** The whole current record; undefined when there is none. */
	readonly record: StoredRecord | undefined;
}

/** State updates of one conversation that were not applied before, in order of arrival. */
export interface ApplyRequest {
	readonly conversationId: string;
	readonly current: CurrentRecord;
	readonly updates: readonly { readonly event: ProtectedEvent; readonly happenedAt: bigint }[];
}

export interface AppliedUpdates extends Pick<EventEffect, "next" | "memberTimes" | "version"> {
	/** Members whose values were not applied, because they break rules of the record. */
	readonly refused: readonly RefusedMember[];
}

/** A batch of events that was parsed and, if possible, applied to a cached record. */
export interface PreparedBatch extends Pick<ParsedEvents, "delay">, Pick<AppliedUpdates, "refused"> {
	/** Has an effect if it was applied to a cached record. The store checks whether that record is still current. */
	readonly batch: NewEvents;
}

/** Maximum bytes of encoded records that are cached for the next state updates of their conversations. */
const MAX_CACHED_BYTES = 8 * 2 ** 20;

/** A record to which the last state updates have been applied. */
interface CachedRecord extends OpenRecord {
	/** Revision of the conversation's record state, if the store accepts the result of these updates. */
	readonly revision: bigint;
	/** The members that summaries are made of, with their secrets redacted. */
	readonly shown: ConversationInfo;
	/** The protected record when it was fetched, encoded. */
	readonly base: Uint8Array;
	/** The changes to it since, encoded as a delta. */
	readonly delta: Uint8Array;
}

const NO_CHANGES = encodeDelta([], new Uint8Array());

/**
 * Makes the next version of a conversation's record from its state updates.
 *
 * The records of the conversations with the most recent state updates are cached in memory, so that they need not be
 * fetched and decoded again. A cached record may be out of date: the store compares its revision, which is unique.
 */
export class RecordUpdater {
	readonly #format: RecordFormat;
	readonly #vault: RecordVault;
	readonly #events: EventFormat;
	readonly #cache = new LRUCache<string, CachedRecord>({ maxSize: MAX_CACHED_BYTES });
	/**
	 * Conversations whose record was fetched, weighted by its size. A record is cached from the second time on: otherwise
	 * conversations that have state updates once would fill the heap and evict those that have more.
	 */
	readonly #fetched = new LRUCache<string, true>({ maxSize: MAX_CACHED_BYTES });

	constructor(format: RecordFormat, vault: RecordVault, events: EventFormat) {
		this.#format = format;
		this.#vault = vault;
		this.#events = events;
	}

	applyToCached({ batch, json, delay }: ParsedEvents): PreparedBatch {
		const { conversationId, events } = batch;
		const cached = this.#cache.get(conversationId);
		if (cached === undefined) return { batch, refused: [], delay };
		const updates = events.flatMap((event, index) => {
			if (event.kind !== STATE_UPDATE) return [];
			const members = event.secrets.length === 0 ? json[index] : this.#events.members(conversationId, event);
			return members === undefined ? [] : [{ members, time: event.happenedAt }];
		});
		if (updates.length === 0) return { batch, refused: [], delay };
		const { refused, ...effect } = this.#applyTo(conversationId, cached, updates);
		return { batch: { ...batch, effect: { expects: cached.revision, ...effect } }, refused, delay };
	}

	/**
	 * Applies state updates to the current record, or makes the first record from them. Throws `data_loss` when the current
	 * record or an event cannot be read or decrypted.
	 */
	apply({ conversationId, current, updates }: ApplyRequest): AppliedUpdates {
		const opened = updates.map(({ event, happenedAt }) => ({
			members: this.#events.members(conversationId, event),
			time: happenedAt,
		}));
		if (current.record !== undefined) {
			const reportTimes = { posted: current.postedAt, events: parseMemberTimes(current.memberTimes) };
			const { bytes } = current.record;
			const mayCache = this.#fetched.has(conversationId) && bytes.byteLength < MIN_SIZE_OF_TOO_MANY_FIELDS;
			this.#fetched.set(conversationId, true, { size: bytes.byteLength });
			// The memory of the argument may be released.
			const base = mayCache ? bytes.slice() : bytes;
			return this.#applyTo(conversationId, this.#open(base, reportTimes), opened, mayCache);
		}
		const first = firstRecord(conversationId, opened, this.#format);
		if (first === undefined)
			return { next: newRevision(), memberTimes: formatMemberTimes({}), version: undefined, refused: [] };
		const base = this.#vault.protect(first.record);
		const applied = this.#applyTo(conversationId, this.#open(base.bytes, first.reportTimes), opened, false);
		const { summary, facts } = applied.version ?? summaryOf(first.record);
		const { record: delta, runStartedAt } = applied.version ?? {};
		const record = delta === undefined ? base : mergeProtected(base, delta, mergeRecord);
		const statusAt = applied.version?.statusAt ?? first.reportTimes.events.execution_status;
		return { ...applied, version: { summary, facts, record, statusAt, runStartedAt } };
	}

	/** Opens a protected record, of which only those members are decoded that are needed. */
	#open(base: Uint8Array, reportTimes: ReportTimes): Omit<CachedRecord, "revision"> {
		return {
			base,
			delta: NO_CHANGES,
			reportTimes,
			json: new Map(),
			read: (names) => this.#format.membersToJson(this.#vault.openMembers(base, names, "plaintext"), names),
			shown: this.#vault.openMembers(base, SUMMARY_MEMBERS, "redacted"),
		};
	}

	/** Applies state updates to a record, and caches it for the next ones if `mayCache` is set and it is small enough. */
	#applyTo(
		conversationId: string,
		before: Omit<CachedRecord, "revision">,
		updates: readonly StateUpdate[],
		mayCache = true,
	): AppliedUpdates {
		// Not cached during the changes, which are made in place.
		this.#cache.delete(conversationId);
		const { base } = before;
		const { changed, values, refused, reportTimes, runStartedAt } = applyUpdates(this.#format, before, updates);
		const next = newRevision();
		const keep = (delta: Uint8Array): void => {
			const size = base.byteLength + delta.byteLength;
			if (!mayCache || size >= MIN_SIZE_OF_TOO_MANY_FIELDS) return;
			this.#cache.set(conversationId, { ...before, revision: next, reportTimes, delta }, { size });
		};
		const applied = { next, memberTimes: formatMemberTimes(reportTimes.events), version: undefined, refused };
		if (changed.length === 0) {
			keep(before.delta);
			return applied;
		}
		try {
			// A copy, because `protect` redacts it, and the JSON form shares its free-form values.
			const redacted = clone(ConversationInfoSchema, values);
			const partial = this.#vault.protect(redacted, conversationId);
			const numbers = changed.map((member) => this.#fieldNumber(member));
			const record = { ...partial, bytes: encodeDelta(numbers, partial.bytes) };
			const delta = mergeDeltas(before.delta, record.bytes);
			const mayBeTooLarge = base.byteLength + delta.byteLength >= MIN_SIZE_OF_TOO_MANY_FIELDS;
			if (mayBeTooLarge && hasTooManyFields(mergeRecord(base, delta), ConversationInfoSchema)) throw tooManyValues();
			for (const member of changed) this.#format.replaceMember(before.shown, member, redacted);
			keep(delta);
			const statusAt = reportTimes.events.execution_status;
			return { ...applied, version: { ...summaryOf(before.shown), record, statusAt, runStartedAt } };
		} catch (error) {
			// Each member is within the limits of a record, but all of them together are not.
			const violations = violationsOf(error);
			const broken = changed.map((member) => ({ member, violations }));
			const memberTimes = formatMemberTimes(before.reportTimes.events);
			return { ...applied, memberTimes, refused: [...refused, ...broken] };
		}
	}

	#fieldNumber(member: string): number {
		const field = this.#format.plan.members.get(member);
		if (field === undefined) throw new TypeError(`the record has no member ${member}`);
		return field.desc.number;
	}
}

function summaryOf(record: ConversationInfo): Pick<RecordVersion, "summary" | "facts"> {
	const summary = summarize(record);
	return { summary: encodeSummary(summary), facts: factsOf(summary) };
}

/** Encodes the times as JSON. Microseconds are strings, because a JSON number cannot keep all of them exactly. */
function formatMemberTimes(events: ReportTimes["events"]): string {
	return JSON.stringify(Object.fromEntries(Object.entries(events).map(([member, time]) => [member, String(time)])));
}

function parseMemberTimes(memberTimes = "{}"): ReportTimes["events"] {
	const times: Record<string, string> = JSON.parse(memberTimes);
	return Object.fromEntries(Object.entries(times).map(([member, time]) => [member, BigInt(time)]));
}

/** Last revision of this thread. It starts at random from 2^61 to 2^62, far from those of other threads and runs. */
let lastRevision = 2n ** 61n + (randomBytes(8).readBigUInt64BE() >> 3n);

/** Returns a revision that no other record state has. The revisions of posted records are smaller, below 2^61. */
export function newRevision(): bigint {
	lastRevision += 1n;
	return lastRevision;
}
