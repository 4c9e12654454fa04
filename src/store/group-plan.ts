import { fromBinary } from "@bufbuild/protobuf";
import { type ConversationSummary, ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { ServiceError } from "../errors.ts";
import { mergeProtected, mergeRecord } from "../record/record-delta.ts";
import { type Activity, addEvents, eventsToAdd, leafOver, type Standing, standingOf } from "./activity.ts";
import { microsecondsOf } from "./condition.ts";
import {
	beginsLaterLife,
	type ConversationState,
	deltaForm,
	deltaOverBase,
	firstForm,
	type NextUpdate,
	planEventUpdate,
	planPostedUpdate,
	revisionOf,
	type StoredForm,
	stateAfterEvents,
	type WrittenUpdate,
	wholeForm,
} from "./conversation-state.ts";
import {
	type AppendRequest,
	duplicateCandidate,
	findDuplicate,
	type GroupRequest,
	type PossibleDuplicate,
	type StoredPost,
} from "./duplicates.ts";
import { ERASED_EVENTS, erasedPost, isOfErased } from "./erased-updates.ts";
import type { Erasure } from "./erasure.ts";
import type { AppendedEvents, EventEffect, NewEvents } from "./event-batch.ts";
import type { NewEvent } from "./events.ts";
import {
	eventKey,
	type FirstState,
	type Gap,
	type GapKind,
	type Gaps,
	gapChanges,
	gapKey,
	leafOfRecord,
	type MissingEvents,
	type OpenGaps,
	openGaps,
	type WrittenGaps,
} from "./gaps.ts";
import { comparableTime } from "./ordering.ts";
import type { ConversationOrigin, Poster } from "./owners.ts";
import type { NewestSequences } from "./rows.ts";
import { CountedPosts } from "./senders.ts";
import type { StoredRecord, Unreadable } from "./stored-record.ts";
import type { Appended, NewUpdate } from "./updates.ts";
import {
	countUsage,
	type EncodedStats,
	responsesToFind,
	statsOfDelta,
	statsOfRecord,
	type UsageState,
	type WrittenUsage,
} from "./usage-plan.ts";

/**
 * Decides what a group of appends changes. An engine begins a transaction, reads what {@link groupQuery} asks for, plans
 * the group, and writes {@link WrittenGroup}. Everything that is derived from an append is a member of that group, so that
 * it is written in the same transaction.
 */

/** What an engine reads before it plans a group. */
export interface GroupQuery {
	readonly conversationIds: readonly string[];
	/** Those of the conversations whose {@link KnownConversation.base} is needed. */
	readonly versions: ReadonlySet<string>;
	/** The events of the group. */
	readonly events: readonly EventName[];
	/** Further events, which those and the records of the group name. */
	readonly named: readonly EventName[];
}

export interface EventName {
	readonly conversationId: string;
	readonly eventId: string;
}

/** The state of a conversation while a group is planned: read once, then changed with each append. */
export interface KnownConversation {
	/** Undefined when the conversation has no record. */
	state: ConversationState | undefined;
	/** Undefined when the conversation has had no event. */
	activity: Activity | undefined;
	/** The newest posted update; undefined when there is none, or when pruning has removed it. */
	newestPosted: (Omit<StoredPost, "read"> & { record?: StoredRecord | Unreadable | undefined }) | undefined;
	/** The whole record: the current one or its base. */
	base: { readonly sequence: bigint; readonly size: number; readonly record?: StoredRecord } | undefined;
	/** The current record if it is a delta. */
	delta: StoredRecord | undefined;
	/** Ids of those events of the query, or that it names, that are stored already. */
	readonly eventIds: Set<string>;
	gaps: Gaps;
	/** The conversation of which this one is a fork, according to the current record. */
	source: string | undefined;
	/** Undefined when no usage of the conversation has been counted. */
	usage: UsageState | undefined;
	/** Who posted the conversation first; undefined when nothing of it is stored. */
	origin: ConversationOrigin | undefined;
	/** Forks that have a gap for an event of the group in this conversation, by the id of the event. */
	readonly forks: ReadonlyMap<string, readonly string[]>;
	/** Set if nothing of the conversation is stored because it was erased. */
	readonly erasure: Erasure | undefined;
}

/** The rows that a group writes. */
export interface WrittenGroup {
	/** In order of their sequences. */
	readonly updates: WrittenUpdate[];
	/** In order of their sequences. */
	readonly events: WrittenEvent[];
	/** Changed conversations by their ids, with the summary of their current record if it is a new one. */
	readonly states: Map<
		string,
		{ readonly state: ConversationState; readonly summary: ConversationSummary | undefined }
	>;
	/** Changed activities, by the ids of their conversations. */
	readonly activities: Map<string, Activity>;
	readonly usage: WrittenUsage;
	/** Origins of the changed conversations, by their ids. They are written with a conversation's first row. */
	readonly origins: Map<string, ConversationOrigin>;
	/** Changes of the gaps of conversations, by the ids of these. */
	readonly gaps: Map<string, WrittenGaps>;
	/** Standings of the conversations with a record whose state, activity or gaps change, by their ids. */
	readonly standings: Map<string, Standing>;
	/** What the posts of the group add to their senders. */
	readonly posts: CountedPosts;
}

export interface WrittenEvent {
	readonly sequence: bigint;
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly sender: string | undefined;
	readonly origin: UpdateOrigin;
	readonly event: NewEvent;
}

/** The error for each post by an owner's key to a conversation that is not its owner's. */
const OTHER_OWNER = new ServiceError("permission_denied", "The conversation does not belong to the owner of this key");

/** Returns the error for a post to a conversation of this origin; undefined for a post that is allowed. */
export function ownerRefusal(
	poster: Poster | undefined,
	origin: ConversationOrigin | undefined,
): ServiceError | undefined {
	const isAllowed = poster?.owner === undefined || origin === undefined || origin.owner === poster.owner;
	return isAllowed ? undefined : OTHER_OWNER;
}

/** Result of a request of a group. Undefined as for `Store.appendEvents`. */
export type AppendResult = Appended | PossibleDuplicate | AppendedEvents | undefined;

/** Outcome of a request of a group: its result, or the error for a request that may no longer be written. */
export type AppendOutcome = AppendResult | ServiceError;

/** The rows that a group writes, and the outcomes of its requests once these rows are on disk. */
export interface GroupPlan {
	readonly written: WrittenGroup;
	readonly outcomes: readonly AppendOutcome[];
}

/** What a plan stops for to have it read. */
export interface PlanReads {
	/** Sequences of records. */
	readonly records: readonly bigint[];
	/** Responses of models whose time is wanted. */
	readonly responses: readonly Response[];
	/** Missing events that may have been pruned, or copied from the source of a fork. Alone when they are set. */
	readonly missing?: MissingEvents | undefined;
}

/** A response of a model in a conversation. `key` is the stored form of its id: see `responseKey`. */
export interface Response {
	readonly conversationId: string;
	readonly key: string;
}

/** What was read for a plan. What does not exist is missing. */
export interface PlanResults {
	/** Records in their stored form, whole or a delta, by sequence. */
	readonly records: StoredRecords;
	/** The times of the first events with the wanted responses. */
	readonly responses: readonly (Response & { readonly happenedAt: bigint })[];
	/**
	 * Those of the missing events that are no gaps: all, if events of the conversation have been pruned. Those of a fork, if
	 * one of its sources has them, has been pruned or is not known. A source of another owner is not known.
	 */
	readonly explained?: ReadonlySet<string> | undefined;
}

/** Records in their stored form, whole or a delta, by sequence. Those that do not exist are missing. */
export type StoredRecords = ReadonlyMap<bigint, StoredRecord | Unreadable>;

/** The making of a plan, which stops to have something read. */
export type Planning<Result = GroupPlan> = Generator<PlanReads, Result, PlanResults>;

/** Returns what an engine reads before it plans a group. */
export function groupQuery(requests: readonly GroupRequest[]): GroupQuery {
	const batches = requests.flatMap((request) => ("update" in request ? [] : [request]));
	return {
		conversationIds: [...new Set(requests.map(conversationOf))],
		versions: new Set(
			batches.flatMap(({ conversationId, effect }) => (effect?.version === undefined ? [] : [conversationId])),
		),
		events: batches.flatMap(({ conversationId, events }) => events.map(({ eventId }) => ({ conversationId, eventId }))),
		named: requests.flatMap(namedEvents),
	};
}

/** Returns the events that a request names and does not bring. */
function namedEvents(request: GroupRequest): EventName[] {
	const conversationId = conversationOf(request);
	if ("update" in request) {
		const leaf = leafOfRecord(request.update.record.bytes);
		return leaf === undefined ? [] : [{ conversationId, eventId: leaf }];
	}
	const own = new Set(request.events.map(({ eventId }) => eventId));
	const named = new Set(request.named?.map(({ missing }) => missing));
	for (const { parentId, reportedLeaf } of request.events)
		for (const id of [parentId, reportedLeaf]) if (id !== undefined && !own.has(id)) named.add(id);
	return [...named].map((eventId) => ({ conversationId, eventId }));
}

export function conversationOf(request: GroupRequest): string {
	return "update" in request ? request.update.conversationId : request.conversationId;
}

/**
 * Plans a group, one request after the other.
 *
 * @param known the conversations of {@link groupQuery}, by id; the plan changes them
 * @param newest the sequences after which those of the group begin
 * @param refusalOf returns the error for a request that may no longer be written
 * @throws Error when the record on which a version is based cannot be read
 */
export function* planGroup<Request extends GroupRequest>(
	requests: readonly Request[],
	known: ReadonlyMap<string, KnownConversation>,
	newest: NewestSequences,
	refusalOf: (request: Request) => ServiceError | undefined,
): Planning {
	const decoded = requests.map((request) => ({ request, append: decode(request) }));
	const planner = new GroupPlanner(known, newest);
	yield* planner.readAhead(decoded.map(({ append }) => append));
	const outcomes: AppendOutcome[] = [];
	for (const { request, append } of decoded) {
		const refusal = refusalOf(request) ?? planner.refusalOfOwner(append);
		const instead = refusal ?? planner.resultOfErased(append);
		if (instead !== undefined) outcomes.push(instead);
		else outcomes.push(yield* "summary" in append ? planner.post(append) : planner.addEvents(append));
	}
	planner.addGaps();
	planner.addStandings();
	return { written: planner.written, outcomes };
}

/** Completes a plan. */
export function completePlan(planning: Planning, read: (reads: PlanReads) => PlanResults): GroupPlan {
	let step = planning.next();
	while (!step.done) step = planning.next(read(step.value));
	return step.value;
}

/** Does the same as {@link completePlan} with a `read` that is asynchronous. */
export async function completePlanAsync(
	planning: Planning,
	read: (reads: PlanReads) => Promise<PlanResults>,
): Promise<GroupPlan> {
	let step = planning.next();
	while (!step.done) step = planning.next(await read(step.value));
	return step.value;
}

/** What is judged of a conversation. */
interface Judged {
	/** The conversation of which this one is a fork. */
	readonly source: string | undefined;
	/** Its leaf before the request. */
	readonly leaf: string | undefined;
	/** Gaps to open unless their events are stored. */
	readonly named: readonly Gap[];
	readonly firstState?: FirstState | undefined;
}

/** An append of an update, with what the plan takes from its summary and its record. */
interface Post extends AppendRequest {
	readonly summary: ConversationSummary;
	/** Undefined if the record cannot be read. */
	readonly stats: EncodedStats | undefined;
	/** See {@link leafOfRecord}. */
	readonly leaf: string | undefined;
}

function decode(request: GroupRequest): Post | NewEvents {
	if (!("update" in request)) return request;
	const { update, judged } = request;
	const { bytes } = update.record;
	const summary = fromBinary(ConversationSummarySchema, update.summary);
	return { update, judged, summary, stats: statsOfRecord(bytes), leaf: leafOfRecord(bytes) };
}

class GroupPlanner {
	readonly written: WrittenGroup = {
		updates: [],
		events: [],
		states: new Map(),
		activities: new Map(),
		usage: { states: new Map(), rows: new Map() },
		origins: new Map(),
		gaps: new Map(),
		standings: new Map(),
		posts: new CountedPosts(),
	};
	readonly #known: ReadonlyMap<string, KnownConversation>;
	readonly #newest: NewestSequences;
	/** The times of the first events with responses of models, by conversation and stored form of the response's id. */
	readonly #responseTimes = new Map<string, bigint>();
	/** The gaps before the group, by conversation. */
	readonly #gapsBefore: ReadonlyMap<string, Gaps>;

	constructor(known: ReadonlyMap<string, KnownConversation>, newest: NewestSequences) {
		this.#known = known;
		this.#newest = newest;
		this.#gapsBefore = new Map([...known].map(([id, { gaps }]) => [id, gaps]));
	}

	/** Returns the error for a post to a conversation of another owner, before anything of it is compared. */
	refusalOfOwner(append: Post | NewEvents): ServiceError | undefined {
		const { conversationId, poster } = "summary" in append ? append.update : append;
		return ownerRefusal(poster, originOf(this.#conversation(conversationId)));
	}

	/** Returns the result of an append to an erased conversation, of which nothing is stored. */
	resultOfErased(append: Post | NewEvents): Appended | AppendedEvents | undefined {
		const isPost = "summary" in append;
		const { erasure, state } = this.#conversation(isPost ? append.update.conversationId : append.conversationId);
		if (erasure === undefined || state !== undefined) return undefined;
		if (!isPost) return ERASED_EVENTS;
		return isOfErased(erasure, microsecondsOf(append.summary.createdAt)) ? erasedPost(erasure) : undefined;
	}

	/** Sets the origin of a conversation of which nothing was stored. */
	#setOrigin(conversationId: string, known: KnownConversation, poster: Poster | undefined): void {
		known.origin = originOf(known) ?? { sender: poster?.sender, owner: poster?.owner };
		this.written.origins.set(conversationId, known.origin);
	}

	/**
	 * Reads the newest posted records that the posts may repeat, unless the caller has compared them already, and the times
	 * of the responses that new stats name.
	 */
	*readAhead(appends: readonly (Post | NewEvents)[]): Planning<void> {
		const wanted = new Map<bigint, KnownConversation["newestPosted"]>();
		const responses: Response[] = [];
		const seen = new Set<string>();
		for (const append of appends) {
			const conversationId = "summary" in append ? append.update.conversationId : append.conversationId;
			const known = this.#conversation(conversationId);
			const stats = newStats(append, known);
			const keys =
				stats === undefined ? [] : responsesToFind(seen.has(conversationId) ? undefined : known.usage, stats);
			responses.push(...keys.map((key) => ({ conversationId, key })));
			seen.add(conversationId);
			if (!("summary" in append)) continue;
			const { update, summary, judged } = append;
			const { state, newestPosted } = known;
			if (state?.newestPosted === undefined) continue;
			const { sequence } = state.newestPosted;
			const updatedAt = microsecondsOf(summary.updatedAt);
			const candidate = duplicateCandidate(state, updatedAt, update.record, () => newestPosted);
			if (candidate !== undefined && judged !== "no duplicate" && sequence !== judged?.sequence)
				wanted.set(sequence, candidate);
		}
		if (wanted.size === 0 && responses.length === 0) return;
		const read = yield { records: [...wanted.keys()], responses };
		for (const [sequence, post] of wanted) if (post !== undefined) post.record = read.records.get(sequence);
		for (const { conversationId, key, happenedAt } of read.responses)
			this.#addResponse(conversationId, key, happenedAt);
	}

	*post(request: Post): Planning<Appended | PossibleDuplicate> {
		const { update, summary, stats, leaf } = request;
		const known = this.#conversation(update.conversationId);
		const { state, newestPosted } = known;
		const find = () =>
			newestPosted && { ...newestPosted, read: () => newestPosted.record ?? { unreadable: "the record is missing" } };
		if (update.isFetched && state !== undefined && !beginsLaterLife(summary, state, update.receivedAt)) {
			const { sequence, hasUnappliedEvents } = state;
			return { sequence, duplicate: true, change: UpdateChange.UPDATED, current: true, hasUnappliedEvents };
		}
		const duplicate = state && findDuplicate(request, state, microsecondsOf(summary.updatedAt), find);
		if (duplicate !== undefined) return duplicate;
		this.#setOrigin(update.conversationId, known, update.poster);
		const sequence = this.#nextUpdate();
		const { forkedFromConversationId: source = known.source } = summary;
		close(known, { kind: "no_record", missing: "" });
		const named = leaf === undefined ? [] : [gapOf("missing_leaf", leaf, known.activity?.leaf?.text, update)];
		yield* this.#judge(update.conversationId, known, { source, leaf: known.activity?.leaf?.text, named });
		const gaps = openGaps(known.gaps);
		const before = known.state;
		const next = planPostedUpdate({ update, summary, before, activity: known.activity, gaps, sequence });
		const { change, current } = next.written;
		known.newestPosted = { change, current, schemaVersion: update.record.schemaVersion, record: update.record };
		this.#write(known, next, summary);
		if (current) this.#countUsage(known, next.written, stats, summary);
		this.#count(update, { records: 1n });
		const { hasUnappliedEvents } = next.after;
		return { sequence, duplicate: false, change, current, hasUnappliedEvents, ...gapsAfter(known) };
	}

	/**
	 * Opens gaps for the events among the named ones that are not stored. Then closes those that have other reasons: a gap
	 * of a fork also when its source is known or gets the event only later.
	 *
	 * @returns the events that are missing for other reasons
	 */
	*#judge(
		conversationId: string,
		known: KnownConversation,
		{ source, leaf, named, firstState }: Judged,
	): Planning<ReadonlySet<string>> {
		// The leaf stays known when it has been pruned, or belongs to the source.
		const missing = named.filter(({ missing: id }) => !known.eventIds.has(id) && id !== leaf);
		const open = new Map(known.gaps);
		for (const gap of missing) {
			const before = open.get(gapKey(gap));
			// That an event follows the missing one says more than that it was the last one.
			if (before === undefined) open.set(gapKey(gap), gap);
			else if (before.kind === "missing_leaf" && gap.kind === "missing_parent")
				open.set(gapKey(gap), { ...before, kind: gap.kind });
		}
		// An open gap of a conversation that is no fork has been judged: its event was not stored before, nor since.
		const unknown = missing.filter((gap) => !known.gaps.has(gapKey(gap)));
		const doubtful = source === undefined ? unknown : [...open.values()].filter(isOfEvent);
		const ids = [...new Set(doubtful.map(({ missing: id }) => id))];
		let explained: ReadonlySet<string> = new Set();
		if (ids.length > 0) {
			const { owner } = known.origin ?? {};
			const asked = { conversationId, source, owner, eventIds: ids, firstState };
			({ explained = explained } = yield { records: [], responses: [], missing: asked });
			for (const id of explained) open.delete(eventKey(id));
		}
		if (gapChanges(known.gaps, open) !== undefined) known.gaps = open;
		return explained;
	}

	/**
	 * Adds a batch of events, with the version of the record that it makes.
	 *
	 * @returns undefined when nothing may be written: the batch has an effect, and the conversation's revision is not the
	 *   expected one or an event that changes the record is stored already
	 */
	*addEvents(batch: NewEvents): Planning<AppendedEvents | undefined> {
		const { conversationId, receivedAt, poster, events, effect, isFetched } = batch;
		const origin = isFetched ? UpdateOrigin.RECONCILED : UpdateOrigin.POSTED;
		const known = this.#conversation(conversationId);
		const isStored = ({ eventId }: NewEvent) => known.eventIds.has(eventId);
		const added = eventsToAdd(batch, revisionOf(known.state, known.activity), isStored);
		if (added === undefined) return undefined;
		if (added.size > 0 || effect?.version !== undefined) this.#setOrigin(conversationId, known, poster);
		let newest = 0n;
		const named = [...namedByEvents(batch, added, known), ...(batch.named ?? [])];
		const sequences = new Map<NewEvent, bigint>();
		for (const event of added) {
			known.eventIds.add(event.eventId);
			close(known, { kind: "missing_parent", missing: event.eventId });
			newest = this.#newest.events + BigInt(this.written.events.length + 1);
			sequences.set(event, newest);
			this.written.events.push({ sequence: newest, conversationId, receivedAt, sender: poster?.sender, origin, event });
			if (event.llmResponseId !== undefined) this.#addResponse(conversationId, event.llmResponseId, event.happenedAt);
		}
		const isNew = known.state === undefined && known.activity === undefined;
		const firstState = isNew ? firstStateOf(added) : undefined;
		const leaf = known.activity?.leaf?.text;
		known.activity = addEvents(known.activity, events, sequences);
		const explained = yield* this.#judge(conversationId, known, { source: known.source, leaf, named, firstState });
		const isFork = firstState !== undefined && explained.has(firstState.leaf);
		if (isFork && known.activity !== undefined) known.activity = withLeaf(known.activity, firstState);
		if (added.size > 0 && known.activity !== undefined) this.written.activities.set(conversationId, known.activity);
		if (added.size > 0) this.#count(batch, { events: BigInt(added.size) });
		// A fetched record has what posts carry.
		if (effect?.postedAt !== undefined) close(known, { kind: "no_record", missing: "" });
		else if (effect?.version !== undefined && known.state === undefined && !isFork)
			open(known, gapOf("no_record", "", undefined, batch));
		const update = effect && (yield* this.#applyEffect(batch, effect, known));
		const forks = new Set(events.flatMap(({ eventId }) => known.forks.get(eventId) ?? []));
		forks.delete(conversationId);
		return {
			stored: added.size,
			newest,
			updateSequence: update?.sequence,
			...(update === undefined ? {} : { updateChange: update.change }),
			...gapsAfter(known),
			...(forks.size === 0 ? {} : { forks: [...forks] }),
		};
	}

	/**
	 * Applies the effect of a batch.
	 *
	 * @returns the update of the version that it makes; undefined when the record stays the same
	 */
	*#applyEffect(batch: NewEvents, effect: EventEffect, known: KnownConversation): Planning<WrittenUpdate | undefined> {
		const { version } = effect;
		const { state: before, activity } = known;
		if (version === undefined) {
			if (before === undefined) return undefined;
			known.state = stateAfterEvents(before, effect);
			const change = this.written.states.get(batch.conversationId);
			this.written.states.set(batch.conversationId, { state: known.state, summary: change?.summary });
			return undefined;
		}
		const summary = fromBinary(ConversationSummarySchema, version.summary);
		const status = summary.executionStatus;
		const sequence = this.#nextUpdate();
		const leaf = leafOver({ status, postedAt: effect.leafAt ?? before?.postedAt }, activity);
		const stats = newStats(batch, known);
		const form = yield* this.#storedForm(version.record, known, leaf);
		const gaps = openGaps(known.gaps);
		const next = planEventUpdate({ batch, effect, version, summary, before, activity, gaps, sequence }, form);
		this.#write(known, next, summary);
		this.#countUsage(known, next.written, stats, summary);
		return next.written;
	}

	/** Returns the form in which a version that events make is stored: a delta over the last whole record, or whole. */
	*#storedForm(record: StoredRecord, known: KnownConversation, leaf: string | undefined): Planning<StoredForm> {
		const { state, base } = known;
		if (state === undefined) return firstForm(record, leaf);
		if (base === undefined) throw new Error("the base of a conversation's current record is missing");
		const delta = deltaOverBase(record, leaf, known.delta);
		const form = deltaForm(delta, base.sequence, base.size);
		if (form !== undefined) return form;
		const whole = base.record ?? (yield { records: [base.sequence], responses: [] }).records.get(base.sequence);
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

	/** Adds the standings of the conversations that the group changes. */
	addStandings(): void {
		const { states, activities, gaps, standings } = this.written;
		for (const id of new Set([...states.keys(), ...activities.keys(), ...gaps.keys()])) {
			const { state, activity, gaps: open } = this.#conversation(id);
			if (state !== undefined) standings.set(id, standingOf(state, activity, openGaps(open)));
		}
	}

	#write(known: KnownConversation, { written, after }: NextUpdate, summary: ConversationSummary): void {
		const { conversationId, record, base, size, sequence } = written;
		this.written.updates.push(written);
		known.state = after;
		const change = this.written.states.get(conversationId);
		this.written.states.set(conversationId, { state: after, summary: written.current ? summary : change?.summary });
		if (!written.current) return;
		known.source = summary.forkedFromConversationId;
		known.delta = base === undefined ? undefined : record;
		if (base === undefined) known.base = { sequence, size, record };
	}

	/** @param stats undefined when the record that became current has the same stats as the one before */
	#countUsage(
		known: KnownConversation,
		{ conversationId, receivedAt }: Pick<WrittenUpdate, "conversationId" | "receivedAt">,
		stats: EncodedStats | undefined,
		{ agentKind, updatedAt }: Pick<ConversationSummary, "agentKind" | "updatedAt">,
	): void {
		if (stats === undefined) return;
		const { lifeBeganAt } = known.state ?? {};
		const time = comparableTime(microsecondsOf(updatedAt), receivedAt) ?? receivedAt;
		const { sender = "", owner = "" } = known.origin ?? {};
		const current = { sender, owner, ...stats, conversationId, lifeBeganAt, agentKind, time };
		const timeOf = (key: string) => this.#responseTimes.get(`${conversationId} ${key}`);
		known.usage = countUsage(known.usage, current, timeOf, this.written.usage);
	}

	#addResponse(conversationId: string, key: string, happenedAt: bigint): void {
		const id = `${conversationId} ${key}`;
		const known = this.#responseTimes.get(id);
		if (known === undefined || happenedAt < known) this.#responseTimes.set(id, happenedAt);
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

/**
 * Returns the origin of a conversation. One that was removed has that of its usage, and one that was erased has its owner,
 * so that it stays its owner's.
 */
function originOf({ origin, usage, erasure }: KnownConversation): ConversationOrigin | undefined {
	if (origin !== undefined) return origin;
	if (usage !== undefined) return { sender: usage.sender || undefined, owner: usage.owner || undefined };
	return erasure && { sender: undefined, owner: erasure.owner };
}

function gapOf(
	kind: GapKind,
	missing: string,
	after: string | undefined,
	{ receivedAt: since }: NewUpdate | NewEvents,
) {
	return { kind, missing, after, since };
}

/** Returns the first of the states among events that name a last event. */
function firstStateOf(events: ReadonlySet<NewEvent>): (FirstState & { readonly at: bigint }) | undefined {
	const states = [...events].flatMap(({ eventId, reportedLeaf: leaf, happenedAt: at }) =>
		leaf === undefined ? [] : [{ eventId, leaf, at }],
	);
	return states.toSorted((a, b) => (a.at < b.at ? -1 : 1))[0];
}

/** Returns an activity whose leaf is the one that a state names, unless it has another: later events name it as parent. */
function withLeaf(activity: Activity, { leaf, at }: FirstState & { readonly at: bigint }): Activity {
	return { ...activity, leaf: activity.leaf ?? { text: leaf, at } };
}

function isOfEvent({ kind }: Gap): boolean {
	return kind === "missing_parent" || kind === "missing_leaf";
}

function open(known: KnownConversation, gap: Gap): void {
	if (!known.gaps.has(gapKey(gap))) known.gaps = new Map([...known.gaps, [gapKey(gap), gap]]);
}

function close(known: KnownConversation, gap: Pick<Gap, "kind" | "missing">): void {
	const key = gapKey(gap);
	if (known.gaps.has(key)) known.gaps = new Map([...known.gaps].filter(([other]) => other !== key));
}

/** Returns the gaps for the result of an append. */
function gapsAfter({ gaps }: KnownConversation): { readonly gaps?: OpenGaps } {
	const open = openGaps(gaps);
	return open === undefined ? {} : { gaps: open };
}

/**
 * Returns what would be missing if none of the events was stored that the added ones name.
 *
 * @param known the conversation before the batch
 */
function namedByEvents(
	batch: NewEvents,
	added: ReadonlySet<NewEvent>,
	{ activity, gaps }: Pick<KnownConversation, "activity" | "gaps">,
): Gap[] {
	let [after, afterAt] = [activity?.leaf?.text, activity?.leaf?.at];
	return batch.events.flatMap((event) => {
		const { eventId, parentId, reportedLeaf, happenedAt, isLeaf } = event;
		// The latest event that has arrived may be a later one. What came before a missing event came before its parent too.
		const isEarlier = afterAt === undefined || afterAt <= happenedAt;
		const known = isEarlier ? after : gaps.get(eventKey(eventId))?.after;
		const named = [
			...(parentId === undefined ? [] : [gapOf("missing_parent", parentId, known, batch)]),
			...(reportedLeaf === undefined ? [] : [gapOf("missing_leaf", reportedLeaf, known, batch)]),
		];
		if (isLeaf) [after, afterAt] = [eventId, happenedAt];
		return added.has(event) ? named : [];
	});
}

/** Returns the stats that an append would make current; undefined when it makes no record, or leaves them as they are. */
function newStats(append: Post | NewEvents, { state }: KnownConversation): EncodedStats | undefined {
	if ("summary" in append) return append.stats;
	const version = append.effect?.version;
	if (version === undefined) return undefined;
	return state === undefined ? statsOfRecord(version.record.bytes) : statsOfDelta(version.record.bytes);
}
