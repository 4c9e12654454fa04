import { setImmediate } from "node:timers/promises";
import { isDataLoss } from "../../errors.ts";
import type { EventFormat } from "../../events/event-format.ts";
import { ERROR_EVENT } from "../../events/reported-error.ts";
import { addDerived, firstMessageOf } from "../../store/activity.ts";
import type { DerivedActivity } from "../../store/activity-facts.ts";
import { COMPLETE } from "../../store/derivation.ts";
import type { EventCondition } from "../../store/event-condition.ts";
import type { NewEvent, StoredEvent } from "../../store/events.ts";
import type { Store } from "../../store/store.ts";

/** Maximum number of events, and of bytes of their texts, of one step. */
const STEP = { limit: 500, maxBytes: 2 ** 20 };
const NAME = "activities";
/** Version of the rules. Increment it when they change: the facts are then derived anew from the stored events. */
const RULES = 2;
/** The events from which something is derived. */
const CONDITIONS: readonly EventCondition[] = [
	{ kind: "one_of", field: "kind", values: [ERROR_EVENT, "MessageEvent", "ActionEvent"] },
];

/**
 * Derives the first message and the last error of conversations, and the responses of models that events show, from the
 * events that an earlier release stored.
 * Continues where an earlier run ended. Does nothing once all events are done. An event that cannot be read is left out.
 *
 * @param onProgress called after each step with the number of events examined by this run
 */
export async function deriveActivities(
	store: Pick<Store, "events" | "getDerivation" | "saveDerivation">,
	format: EventFormat,
	signal: AbortSignal,
	onProgress: (examined: number, isComplete: boolean) => void,
): Promise<void> {
	const before = await store.getDerivation(NAME);
	let through = before?.version === RULES ? before.through : 0n;
	let examined = 0;
	while (through !== COMPLETE && !signal.aborted) {
		const events = await store.events.list({ after: through, conditions: CONDITIONS, ...STEP });
		const derived = new Map<string, DerivedActivity>();
		const responses: { sequence: bigint; llmResponseId: string }[] = [];
		for (const event of events) {
			const { conversationId } = event;
			const none = { firstMessage: undefined, error: undefined };
			const fact = factOf(event, format);
			if (fact?.firstMessage !== undefined || fact?.error !== undefined)
				derived.set(conversationId, addDerived(derived.get(conversationId) ?? none, fact));
			const { llmResponseId } = fact ?? {};
			if (llmResponseId !== undefined) responses.push({ sequence: event.sequence, llmResponseId });
			// Requests that wait are answered in between.
			await setImmediate();
		}
		through = events.at(-1)?.sequence ?? COMPLETE;
		const activities = [...derived].map(([conversationId, facts]) => ({ conversationId, ...facts }));
		await store.saveDerivation({ name: NAME, version: RULES, through, activities, responses });
		examined += events.length;
		onProgress(examined, through === COMPLETE);
	}
}

function factOf(
	stored: StoredEvent,
	format: EventFormat,
): (DerivedActivity & Pick<NewEvent, "llmResponseId">) | undefined {
	const { conversationId, event, kind, source, happenedAt, sequence } = stored;
	if ("unreadable" in event) return undefined;
	try {
		const { message, error, llmResponseId } = format.derivedFields(conversationId, event);
		const firstMessage = firstMessageOf({ kind, source, message, happenedAt });
		return { firstMessage, error: error && { ...error, at: happenedAt, sequence }, llmResponseId };
	} catch (failure) {
		if (isDataLoss(failure)) return undefined;
		throw failure;
	}
}
