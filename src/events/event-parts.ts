import { type ExactJson, listOf, memberOf, textOf } from "../record/json/json-value.ts";
import { FIRST_TIME, type Microseconds, parseDateTime, toMicroseconds } from "../record/json/scalars.ts";
import type { NewEvent } from "../store/entries.ts";
import { MAX_CLOCK_SKEW } from "../store/ordering.ts";
import { REDACTED, replaceUserinfo } from "../userinfo.ts";

/**
 * Returns the text that the user or the agent says in an event: that of a message, or of the agent's finish action;
 * undefined when it says nothing.
 */
export function messageText(event: ExactJson): string | undefined {
	switch (memberOf(event, "kind")) {
		case "MessageEvent": {
			const content = memberOf(memberOf(event, "llm_message"), "content");
			const texts = listOf(content).flatMap((part) => {
				const text = memberOf(part, "type") === "text" ? memberOf(part, "text") : undefined;
				return typeof text === "string" ? [text] : [];
			});
			return texts.length === 0 ? undefined : texts.join("\n");
		}
		case "ActionEvent": {
			const action = memberOf(event, "action");
			const message = memberOf(action, "kind") === "FinishAction" ? memberOf(action, "message") : undefined;
			return typeof message === "string" ? message : undefined;
		}
		default:
			return undefined;
	}
}

/** Returns the first `count` characters (Unicode code points) of a text without the user names and passwords in URLs. */
export function beginning(text: string, count: number): string {
	// A code point consists of one or two UTF-16 code units.
	const units = replaceUserinfo(text, () => REDACTED).slice(0, 2 * count);
	return units.length <= count ? units : [...units].slice(0, count).join("");
}

/**
 * Parses the time of an event.
 *
 * In the hour that a time zone repeats when summer time ends, a time means its first occurrence, unless that is before what
 * came earlier in the batch, or the second one is about when the batch arrived. The second one never counts when it is after
 * the arrival. A time before the year 1 in UTC counts as {@link FIRST_TIME}.
 *
 * @param timeZone time zone of times without an offset: `UTC` or a name of the IANA time zone database. The agent server
 *   writes the local time of its machine.
 * @returns also the later instant of a repeated local time when the first one was taken; undefined when `text` is no
 *   date-time (ISO 8601, with or without an offset)
 */
export function eventTimes(text: string, timeZone: string, context: TimeContext = {}): EventTimes | undefined {
	const parsed = parseDateTime(text);
	if (parsed === undefined) return undefined;
	const local = toMicroseconds(parsed);
	const hasOffset = /(?:[Zz]|[+-]\d\d:?\d\d)$/.test(text.slice("YYYY-MM-DDTHH:MM".length));
	const times = timeZone === "UTC" || hasOffset ? { at: local } : inTimeZone(local, timeZone, context);
	return times.at < FIRST_TIME ? { at: FIRST_TIME } : times;
}

interface EventTimes {
	readonly at: Microseconds;
	readonly laterAt?: Microseconds;
}

/** What tells the two instants of a repeated local time apart. */
interface TimeContext {
	/** The latest time of the events before it in its batch. */
	readonly after?: Microseconds | undefined;
	readonly receivedAt?: Microseconds | undefined;
}

/** Microseconds within which events usually arrive, also when their sender tried again. */
const USUAL_DELAY = 30n * 60n * 1_000_000n;

/** Returns the instant at which the local time in `timeZone` is the UTC time of `micros`. */
function inTimeZone(micros: Microseconds, timeZone: string, { after, receivedAt }: TimeContext): EventTimes {
	const shown = Temporal.Instant.fromEpochNanoseconds(micros * 1000n)
		.toZonedDateTimeISO("UTC")
		.toPlainDateTime();
	const [first, second] = (["compatible", "later"] as const).map(
		(disambiguation) => shown.toZonedDateTime(timeZone, { disambiguation }).epochNanoseconds / 1000n,
	);
	if (first === undefined || second === undefined || first === second) return { at: first ?? micros };
	const delay = receivedAt === undefined ? USUAL_DELAY : receivedAt - second;
	// It is not over yet, so the event did not happen then.
	if (delay < -MAX_CLOCK_SKEW) return { at: first };
	const hasJustArrived = delay < USUAL_DELAY;
	return hasJustArrived || (after !== undefined && first < after) ? { at: second } : { at: first, laterAt: second };
}

const ERROR_EVENT = "ConversationErrorEvent";
/** Maximum number of characters that are stored of the text of an error. */
const MAX_TEXT = 500;
/** Maximum number of characters that are stored of the code and of the kind of an error. */
const MAX_NAME = 200;

/** Returns the error that an event with hidden secrets reports; undefined when it is no ConversationErrorEvent. */
export function reportedError(event: ExactJson): NewEvent["error"] {
	if (memberOf(event, "kind") !== ERROR_EVENT) return undefined;
	const classification = memberOf(event, "classification");
	const retryable = memberOf(classification, "retryable");
	return {
		code: beginning(textOf(memberOf(event, "code")), MAX_NAME),
		kind: beginning(textOf(memberOf(classification, "kind")), MAX_NAME),
		retryable: typeof retryable === "boolean" ? retryable : undefined,
		text: beginning(textOf(memberOf(event, "detail")), MAX_TEXT),
	};
}

/** An event, for its order among those of its conversation. */
export interface TimedEvent {
	readonly id: string;
	/** When it happened, in microseconds since the Unix epoch. */
	readonly at: bigint;
	/** Ids of events that happened before it: its parent, and the action that it answers. */
	readonly follows: readonly string[];
}

/**
 * Returns events in the order in which they happened: that of their times, and of the log where these are equal. When a
 * clock was set back, times contradict what events say of each other: an event has an earlier time than one that it follows,
 * and came after it in the log. Then the order is that of the log, and times never go back: from each step back on, they are
 * later by that step.
 *
 * @param events in the order of the log
 * @param compare orders events with equal times in place of the log
 */
export function inOrder<Event extends TimedEvent>(
	events: readonly Event[],
	compare: (a: Event, b: Event) => number = () => 0,
): readonly Event[] {
	const times = new Map<string, bigint>();
	const isSetBack = events.some(({ id, at, follows }) => {
		times.set(id, at);
		return follows.some((before) => before !== id && (times.get(before) ?? at) > at);
	});
	if (!isSetBack) return events.toSorted((a, b) => Number(a.at - b.at) || compare(a, b));
	let later = 0n;
	let before: bigint | undefined;
	return events.map((event) => {
		const at = event.at + later;
		if (before !== undefined && at < before) later += before - at;
		before = event.at + later;
		return { ...event, at: before };
	});
}
