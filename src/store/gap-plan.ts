import type { Activity } from "./activity.ts";
import type { NewEvent, NewEvents, NewUpdate } from "./entries.ts";
import { eventKey, type FirstState, type Gap, type GapKind, gapChanges, gapKey } from "./gaps.ts";
import type { KnownConversation, PlanReads } from "./group.ts";

/** Which gaps of a conversation an append opens and closes. */

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

/**
 * Opens gaps for the events among the named ones that are not stored. Then closes those that have other reasons: a gap
 * of a fork also when its source is known or gets the event only later.
 *
 * @returns the events that are missing for other reasons
 */
export async function judgeGaps(
	conversationId: string,
	known: KnownConversation,
	{ source, leaf, named, firstState }: Judged,
	reads: PlanReads,
): Promise<ReadonlySet<string>> {
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
	const isOpen = ({ missing: id }: Gap) => source !== undefined || id === firstState?.leaf;
	const doubtful = [...unknown, ...[...open.values()].filter((gap) => isOfEvent(gap) && isOpen(gap))];
	const ids = [...new Set(doubtful.map(({ missing: id }) => id))];
	let explained: ReadonlySet<string> = new Set();
	if (ids.length > 0) {
		const { owner } = known.ownership ?? {};
		explained = await reads.explained({ conversationId, source, owner, eventIds: ids, firstState });
		for (const id of explained) open.delete(eventKey(id));
	}
	if (gapChanges(known.gaps, open) !== undefined) known.gaps = open;
	return explained;
}

/** Returns a gap that a request opens. */
export function gapOf(
	kind: GapKind,
	missing: string,
	after: string | undefined,
	{ receivedAt: since }: NewUpdate | NewEvents,
) {
	return { kind, missing, after, since };
}

/** Returns the first of the states among events that name a last event. */
export function firstStateOf(events: ReadonlySet<NewEvent>): (FirstState & { readonly at: bigint }) | undefined {
	const states = [...events].flatMap(({ eventId, reportedLeaf: leaf, happenedAt: at }) =>
		leaf === undefined ? [] : [{ eventId, leaf, at }],
	);
	return states.toSorted((a, b) => (a.at < b.at ? -1 : 1))[0];
}

/**
 * Returns what the first event of a conversation without a posted record named, if that is missing: the conversation may be a
 * fork of one whose events arrive later. Which event named it is not known any more.
 */
export function firstMissing({ gaps }: Pick<KnownConversation, "gaps">): FirstState | undefined {
	if (!gaps.has(gapKey({ kind: "no_record", missing: "" }))) return undefined;
	const first = [...gaps.values()].find((gap) => isOfEvent(gap) && gap.after === undefined);
	return first && { eventId: "", leaf: first.missing };
}

/** Returns an activity whose leaf is the one that a state names, unless it has another: later events name it as parent. */
export function withFirstLeaf(activity: Activity, { leaf, at }: FirstState & { readonly at: bigint }): Activity {
	return { ...activity, leaf: activity.leaf ?? { text: leaf, at } };
}

function isOfEvent({ kind }: Gap): boolean {
	return kind === "missing_parent" || kind === "missing_leaf";
}

/** Opens a gap, unless it is open. */
export function openGap(known: KnownConversation, gap: Gap): void {
	if (!known.gaps.has(gapKey(gap))) known.gaps = new Map([...known.gaps, [gapKey(gap), gap]]);
}

/** Closes a gap if it is open. */
export function closeGap(known: KnownConversation, gap: Pick<Gap, "kind" | "missing">): void {
	const key = gapKey(gap);
	if (known.gaps.has(key)) known.gaps = new Map([...known.gaps].filter(([other]) => other !== key));
}

/**
 * Returns what would be missing if none of the events was stored that the added ones name.
 *
 * @param known the conversation before the batch
 */
export function namedByEvents(
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
