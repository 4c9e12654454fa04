import { setImmediate } from "node:timers/promises";
import { isDataLoss } from "../../errors.ts";
import type { EventFormat } from "../../events/event-format.ts";
import { COMPLETE } from "../../store/derivation.ts";
import type { StoredEvent } from "../../store/events.ts";
import type { Gap, GapKind } from "../../store/gaps.ts";
import type { Store } from "../../store/store.ts";

/** Maximum number of events, and of bytes of their texts, of one step. */
const STEP = { limit: 500, maxBytes: 2 ** 20 };
const NAME = "gaps";
/** Version of the rules. Increment it when they change: the stored events are then judged again. */
const RULES = 1;

/**
 * Opens gaps for the missing events that stored events of an earlier release name. Continues where an earlier run ended.
 * Does nothing once all events are done. An event that cannot be read is left out.
 *
 * @param onComplete called with the number of events examined by this run
 */
export async function deriveGaps(
	store: Pick<Store, "events" | "appendEvents" | "getDerivation" | "saveDerivation">,
	format: Pick<EventFormat, "derivedFields">,
	signal: AbortSignal,
	onComplete: (examined: number) => void,
): Promise<void> {
	const before = await store.getDerivation(NAME);
	let through = before?.version === RULES ? before.through : 0n;
	let examined = 0;
	while (through !== COMPLETE && !signal.aborted) {
		const events = await store.events.list({ after: through, ...STEP });
		const named = new Map<string, Gap[]>();
		for (const event of events) {
			const gaps = namedBy(event, format);
			if (gaps.length > 0) named.set(event.conversationId, [...(named.get(event.conversationId) ?? []), ...gaps]);
			// Requests that wait are answered in between.
			await setImmediate();
		}
		for (const [conversationId, gaps] of named) {
			const receivedAt = BigInt(Date.now()) * 1000n;
			await store.appendEvents({ conversationId, receivedAt, events: [], named: gaps, effect: undefined });
		}
		through = events.at(-1)?.sequence ?? COMPLETE;
		await store.saveDerivation({ name: NAME, version: RULES, through });
		examined += events.length;
		if (through === COMPLETE) onComplete(examined);
	}
}

function namedBy(
	{ conversationId, event, receivedAt: since }: StoredEvent,
	format: Pick<EventFormat, "derivedFields">,
): Gap[] {
	if ("unreadable" in event) return [];
	try {
		const { parentId, reportedLeaf } = format.derivedFields(conversationId, event);
		const gapOf = (kind: GapKind, missing: string | undefined): Gap[] =>
			missing === undefined ? [] : [{ kind, missing, after: undefined, since }];
		return [...gapOf("missing_parent", parentId), ...gapOf("missing_leaf", reportedLeaf)];
	} catch (failure) {
		if (isDataLoss(failure)) return [];
		throw failure;
	}
}
