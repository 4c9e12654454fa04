import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { ServiceError } from "../errors.ts";
import {
	childrenIn,
	deltaWithLeaf,
	mergeDeltas,
	mergeProtected,
	mergeRecord,
	withLeaf,
} from "../record/record-delta.ts";
import { addEvents, eventsToAdd, leafOver } from "./activity.ts";
import { type AppendRequest, findDuplicate, type GroupRequest, type PossibleDuplicate } from "./duplicates.ts";
import type {
	AppendedEvents,
	AppendedUpdate,
	EventEffect,
	NewEvent,
	NewEvents,
	NewUpdate,
	RecordFacts,
} from "./entries.ts";
import { ERASED_EVENTS, erasedPost, isOfErased } from "./erasure.ts";
import {
	closeGap,
	firstMissing,
	firstStateOf,
	gapOf,
	judgeGaps,
	namedByEvents,
	openGap,
	withFirstLeaf,
} from "./gap-plan.ts";
import { type Gaps, gapChanges, openGaps } from "./gaps.ts";
import type { KnownConversation, PlanReads, WrittenGroup } from "./group.ts";
import {
	type NextUpdate,
	planEventUpdate,
	planPostedUpdate,
	replacesAsFetched,
	revisionOf,
	type StoredForm,
	stateAfterEvents,
	type WrittenUpdate,
	wholeForm,
} from "./head.ts";
import { mayPost, ownerRefusal, ownershipOf, type Poster } from "./owners.ts";
import { CountedPosts } from "./senders.ts";
import type { NewestSequences } from "./sequence-log.ts";
import type { StoredRecord, Unreadable } from "./values.ts";

/**
 * Decides what a group of appends changes. An engine begins a transaction, reads what `groupQuery` asks for, plans
 * the group, and writes {@link WrittenGroup}. Everything that is derived from an append is a member of that group, so that
 * it is written in the same transaction.
 */

/** Result of a request of a group. Undefined as for `Store.appendEvents`. */
export type AppendResult = AppendedUpdate | PossibleDuplicate | AppendedEvents | undefined;

/** Outcome of a request of a group: its result, or the error for a request that may no longer be written. */
export type AppendOutcome = AppendResult | ServiceError;

/**
 * Plans a group, one request after the other.
 *
 * @param known the conversations of {@link import("./group.ts").groupQuery}, by id; the plan changes them
 * @param newest the sequences after which those of the group begin
 * @param refusalOf returns the error for a request that may no longer be written
 * @param reads reads what only few requests need
 * @returns the rows that the group writes, and the outcomes of its requests once these rows are on disk
 * @throws Error when the record on which a version is based cannot be read
 */
export async function planGroup<Request extends GroupRequest>(
	requests: readonly Request[],
	known: ReadonlyMap<string, KnownConversation>,
	newest: NewestSequences,
	refusalOf: (request: Request) => ServiceError | undefined,
	reads: PlanReads,
): Promise<{ readonly written: WrittenGroup; readonly outcomes: readonly AppendOutcome[] }> {
	const planner = new GroupPlanner(known, newest, reads);
	const outcomes: AppendOutcome[] = [];
	for (const request of requests) outcomes.push(refusalOf(request) ?? (await planner.append(request)));
	planner.addGaps();
	return { written: planner.written, outcomes };
}

/** Maximum size of a delta, as a fraction of its base. A larger one saves too little: the whole record is stored. */
const MAX_DELTA_FRACTION = 1 / 4;

/** Stands for a record that is gone. */
const MISSING: Unreadable = { unreadable: "the record is missing" };

class GroupPlanner {
	readonly written: WrittenGroup = {
		updates: [],
		events: [],
		heads: new Map(),
		activities: new Map(),
		children: new Map(),
		ownerships: new Map(),
		senders: new Map(),
		gaps: new Map(),
		posts: new CountedPosts(),
	};
	readonly #known: ReadonlyMap<string, KnownConversation>;
	readonly #newest: NewestSequences;
	readonly #reads: PlanReads;
	/** The gaps before the group, by conversation. */
	readonly #gapsBefore: ReadonlyMap<string, Gaps>;

	constructor(known: ReadonlyMap<string, KnownConversation>, newest: NewestSequences, reads: PlanReads) {
		this.#known = known;
		this.#newest = newest;
		this.#reads = reads;
		this.#gapsBefore = new Map([...known].map(([id, { gaps }]) => [id, gaps]));
	}

	/** Plans a request. A post to a conversation of another owner is refused before anything of it is compared. */
	async append(request: GroupRequest): Promise<AppendOutcome> {
		const isPost = "update" in request;
		const { conversationId, poster } = isPost ? request.update : request;
		const known = this.#conversation(conversationId);
		const refusal = ownerRefusal(poster, ownershipOf(known));
		if (refusal !== undefined) return refusal;
		const erasure = known.state === undefined ? known.erasure : undefined;
		// Nothing of an erased conversation is stored, but for records of a later life.
		if (erasure !== undefined && !isPost) return ERASED_EVENTS;
		if (isPost && erasure && isOfErased(erasure, request.update.facts.createdAt)) return erasedPost(erasure);
		this.#addSender(conversationId, known, poster);
		return await (isPost ? this.#post(request, known) : this.#addEvents(request, known));
	}

	/**
	 * Gives a conversation that was stored without a sender the sender of an append, also of one that is stored already.
	 * Its owner stays: only an assignment changes it.
	 */
	#addSender(conversationId: string, known: KnownConversation, poster: Poster | undefined): void {
		const ownership = ownershipOf(known);
		if (poster === undefined || ownership === undefined || ownership.sender !== undefined) return;
		const { sender } = poster;
		known.ownership = { ...ownership, sender };
		this.written.ownerships.set(conversationId, known.ownership);
		this.written.senders.set(conversationId, sender);
	}

	/**
	 * Sets the ownership of a conversation of which nothing was stored. Refused batches of senders that may not post to it are no
	 * part of it.
	 */
	#setOrigin(conversationId: string, known: KnownConversation, poster: Poster | undefined): void {
		const isNew = known.ownership === undefined;
		const ownership = ownershipOf(known) ?? { sender: poster?.sender, owner: poster?.owner };
		known.ownership = ownership;
		this.written.ownerships.set(conversationId, ownership);
		if (isNew) known.gaps = new Map([...known.gaps].filter(([, { owner }]) => mayPost(owner, ownership)));
	}

	async #post(request: AppendRequest, known: KnownConversation): Promise<AppendedUpdate | PossibleDuplicate> {
		const { update } = request;
		const { facts, leaf } = update;
		const { state, newestPosted } = known;
		const post = newestPosted && {
			...newestPosted,
			read: async (sequence: bigint) => newestPosted.record ?? (await this.#reads.record(sequence)) ?? MISSING,
		};
		if (update.isFetched && state !== undefined && !replacesAsFetched(facts, state, update.receivedAt)) {
			const { sequence, hasUnappliedEvents } = state;
			return { sequence, duplicate: true, change: UpdateChange.UPDATED, current: true, hasUnappliedEvents };
		}
		const duplicate = state && (await findDuplicate(request, state, post));
		if (duplicate !== undefined) return duplicate;
		this.#setOrigin(update.conversationId, known, update.poster);
		const sequence = this.#nextUpdate();
		const { source = known.source } = facts;
		closeGap(known, { kind: "no_record", missing: "" });
		const named = leaf === undefined ? [] : [gapOf("missing_leaf", leaf, known.activity?.leaf?.text, update)];
		await judgeGaps(update.conversationId, known, { source, leaf: known.activity?.leaf?.text, named }, this.#reads);
		const gaps = openGaps(known.gaps);
		const before = known.state;
		const next = planPostedUpdate({ update, before, activity: known.activity, gaps, sequence });
		const { change, current } = next.written;
		known.newestPosted = { change, current, record: update.record };
		this.#write(known, next, facts);
		this.#count(update, { records: 1n });
		const { hasUnappliedEvents } = next.after;
		return { sequence, duplicate: false, change, current, hasUnappliedEvents };
	}

	/**
	 * Adds a batch of events, with the version of the record that it makes.
	 *
	 * @returns undefined when nothing may be written: the batch has an effect, and the conversation's revision is not the
	 *   expected one or an event that changes the record is stored already
	 */
	async #addEvents(batch: NewEvents, known: KnownConversation): Promise<AppendedEvents | undefined> {
		const { conversationId, receivedAt, poster, events, effect, isFetched } = batch;
		const origin = isFetched ? UpdateOrigin.RECONCILED : UpdateOrigin.POSTED;
		const isStored = ({ eventId }: NewEvent) => known.eventIds.has(eventId);
		const added = eventsToAdd(batch, revisionOf(known.state, known.activity), isStored);
		if (added === undefined) return undefined;
		if (added.size > 0 || effect?.version !== undefined) this.#setOrigin(conversationId, known, poster);
		let newest = 0n;
		const named = namedByEvents(batch, added, known);
		const sequences = new Map<NewEvent, bigint>();
		for (const event of added) {
			known.eventIds.add(event.eventId);
			closeGap(known, { kind: "missing_parent", missing: event.eventId });
			newest = this.#newest.events + BigInt(this.written.events.length + 1);
			sequences.set(event, newest);
			this.written.events.push({ sequence: newest, conversationId, receivedAt, sender: poster?.sender, origin, event });
		}
		const isNew = known.state === undefined && known.activity === undefined;
		const firstState = isNew ? firstStateOf(added) : undefined;
		const leaf = known.activity?.leaf?.text;
		known.activity = addEvents(known.activity, events, sequences);
		const judged = events.length === 0 ? firstMissing(known) : firstState;
		const judgement = { source: known.source, leaf, named, firstState: judged };
		const explained = await judgeGaps(conversationId, known, judgement, this.#reads);
		if (judged !== firstState && explained.size > 0) closeGap(known, { kind: "no_record", missing: "" });
		const isFork = firstState !== undefined && explained.has(firstState.leaf);
		if (isFork && known.activity !== undefined) known.activity = withFirstLeaf(known.activity, firstState);
		if (added.size > 0 && known.activity !== undefined) this.written.activities.set(conversationId, known.activity);
		if (added.size > 0) this.#count(batch, { events: BigInt(added.size) });
		if (effect?.version !== undefined && known.state === undefined && !isFork)
			openGap(known, gapOf("no_record", "", undefined, batch));
		const update = effect && (await this.#applyEffect(batch, effect, known));
		if (added.size > 0 && known.state === undefined) openGap(known, gapOf("no_record", "", undefined, batch));
		const forks = new Set(events.flatMap(({ eventId }) => known.forks.get(eventId) ?? []));
		forks.delete(conversationId);
		return {
			stored: added.size,
			newest,
			updateSequence: update?.sequence,
			...(update === undefined ? {} : { updateChange: update.change }),
			...(forks.size === 0 ? {} : { forks: [...forks] }),
		};
	}

	/**
	 * Applies the effect of a batch.
	 *
	 * @returns the update of the version that it makes; undefined when the record stays the same
	 */
	async #applyEffect(
		batch: NewEvents,
		effect: EventEffect,
		known: KnownConversation,
	): Promise<WrittenUpdate | undefined> {
		const { version } = effect;
		const { state: before, activity } = known;
		if (version === undefined) {
			if (before === undefined) return undefined;
			known.state = stateAfterEvents(before, effect);
			const { state, source, parent } = known;
			this.written.heads.set(batch.conversationId, { state, source, parent });
			return undefined;
		}
		const { status } = version.facts;
		const sequence = this.#nextUpdate();
		const leaf = leafOver({ status, postedAt: before?.postedAt }, activity);
		const form = await this.#storedForm(version.record, known, leaf);
		const gaps = openGaps(known.gaps);
		const next = planEventUpdate({ batch, effect, version, before, activity, gaps, sequence }, form);
		this.#write(known, next, version.facts);
		return next.written;
	}

	/**
	 * Returns the form in which a version that events make is stored: a delta over the last whole record, or whole.
	 *
	 * @param change delta over the current record; the whole record of a conversation that has none
	 * @param leaf `leaf_event_id` of the version; undefined when events do not override it
	 */
	async #storedForm(change: StoredRecord, known: KnownConversation, leaf: string | undefined): Promise<StoredForm> {
		const { state, base, delta: current } = known;
		const put = state === undefined ? withLeaf : deltaWithLeaf;
		const record = leaf === undefined ? change : { ...change, bytes: put(change.bytes, leaf) };
		if (state === undefined) return wholeForm(record);
		if (base === undefined) throw new Error("the base of a conversation's current record is missing");
		const delta = current === undefined ? record : mergeProtected(current, record, mergeDeltas);
		const { byteLength } = delta.bytes;
		if (byteLength <= base.size * MAX_DELTA_FRACTION)
			return { record: delta, base: base.sequence, size: base.size + byteLength };
		const whole = base.record ?? (await this.#reads.record(base.sequence));
		if (whole === undefined) throw new Error("the base record of a delta is missing");
		if ("unreadable" in whole) throw new Error(whole.unreadable);
		return wholeForm(mergeProtected(whole, delta, mergeRecord));
	}

	/** Adds the changes of gaps. */
	addGaps(): void {
		for (const [id, { gaps }] of this.#known) {
			const changes = gapChanges(this.#gapsBefore.get(id) ?? gaps, gaps);
			if (changes !== undefined) this.written.gaps.set(id, changes);
		}
	}

	#write(known: KnownConversation, { written, after }: NextUpdate, { source, parent }: RecordFacts): void {
		const { conversationId, record, base, size, sequence } = written;
		this.written.updates.push(written);
		const { children } = this.written;
		for (const child of childrenIn(record.bytes, base !== undefined))
			children.set(conversationId, (children.get(conversationId) ?? new Set()).add(child));
		known.state = after;
		if (written.current) [known.source, known.parent] = [source, parent];
		this.written.heads.set(conversationId, { state: after, source: known.source, parent: known.parent });
		if (!written.current) return;
		known.delta = base === undefined ? undefined : record;
		if (base === undefined) known.base = { sequence, size, record };
	}

	/** Counts a post that stored something, unless its sender is not known. What was fetched shows no life of the sender. */
	#count(
		{ poster, receivedAt, isFetched }: NewUpdate | NewEvents,
		stored: { records?: bigint; events?: bigint },
	): void {
		if (poster === undefined || isFetched) return;
		const { sender, owner = "" } = poster;
		this.written.posts.add({ sender, owner }, receivedAt, stored);
	}

	#nextUpdate(): bigint {
		return this.#newest.updates + BigInt(this.written.updates.length + 1);
	}

	#conversation(id: string): KnownConversation {
		const known = this.#known.get(id);
		if (known === undefined) throw new Error("the conversation does not belong to the group");
		return known;
	}
}
