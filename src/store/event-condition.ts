/** A condition on an event. The lists of all engines and {@link eventMeets} agree about it. */
export type EventCondition =
	/** The kind or the source is one of the values. */
	| { readonly kind: "one_of"; readonly field: "kind" | "source"; readonly values: readonly string[] }
	/** The kind is none of the values. */
	| { readonly kind: "none_of"; readonly field: "kind"; readonly values: readonly string[] }
	/** The event has this id, of at most {@link MAX_ID_LENGTH} characters (Unicode code points). */
	| { readonly kind: "id"; readonly value: string }
	/** It happened at `from` or later and before `to`. Undefined bounds do not apply. Microseconds of Unix time. */
	| { readonly kind: "happened"; readonly from?: bigint; readonly to?: bigint };

/** Maximum length of an id that a condition has. PostgreSQL's engine stores a longer id cut. */
export const MAX_ID_LENGTH = 256;

/** Base-2 logarithm of the number of sequences in a block of `event_times`, which has the times of its events. */
export const BLOCK_BITS = 10;

/** Returns the range of time that all conditions select together; undefined when none is on the time. */
export function timeRangeOf(conditions: readonly EventCondition[]): { from: bigint; to: bigint } | undefined {
	const ranges = conditions.filter((condition) => condition.kind === "happened");
	if (ranges.length === 0) return undefined;
	let [from, to] = [-(2n ** 63n), 2n ** 63n - 1n];
	for (const range of ranges) {
		if (range.from !== undefined && range.from > from) from = range.from;
		if (range.to !== undefined && range.to < to) to = range.to;
	}
	return { from, to };
}

/** The columns of an event that conditions are on. */
interface ComparedEvent {
	readonly kind: string;
	readonly source: string;
	readonly happenedAt: bigint;
	/** The event with its JSON text, which has the id, unless it cannot be read. */
	readonly event: { readonly text: Uint8Array } | { readonly unreadable: string };
}

/** Returns whether an event meets all conditions. */
export function eventMeets(conditions: readonly EventCondition[], event: ComparedEvent): boolean {
	return conditions.every((condition) => meetsOne(condition, event));
}

function meetsOne(condition: EventCondition, event: ComparedEvent): boolean {
	switch (condition.kind) {
		case "one_of":
			return condition.values.includes(event[condition.field]);
		case "none_of":
			return !condition.values.includes(event[condition.field]);
		case "id":
			return idIn(event) === condition.value;
		case "happened": {
			const { from, to } = condition;
			return (from === undefined || event.happenedAt >= from) && (to === undefined || event.happenedAt < to);
		}
	}
}

/** Returns the id in the text of an event; undefined when it cannot be read. */
function idIn({ event }: ComparedEvent): string | undefined {
	if ("unreadable" in event) return undefined;
	const json: unknown = JSON.parse(new TextDecoder().decode(event.text));
	const id = typeof json === "object" && json !== null && "id" in json ? json.id : undefined;
	return typeof id === "string" ? id : undefined;
}
