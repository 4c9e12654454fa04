/** An event, for its order among those of its conversation. */
export interface TimedEvent {
	/** Empty if it is not known. */
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
