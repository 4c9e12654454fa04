/** A condition on an event. The lists of all engines and {@link eventMeets} agree about it. */
export type EventCondition =
	/** The kind or the source is one of the values. */
	| { readonly kind: "one_of"; readonly field: "kind" | "source"; readonly values: readonly string[] }
	/** The kind is none of the values. */
	| { readonly kind: "none_of"; readonly field: "kind"; readonly values: readonly string[] }
	/** It happened at `from` or later and before `to`. Undefined bounds do not apply. Microseconds of Unix time. */
	| { readonly kind: "happened"; readonly from?: bigint; readonly to?: bigint };

/** Returns whether an event meets all conditions. */
export function eventMeets(
	conditions: readonly EventCondition[],
	event: { readonly kind: string; readonly source: string; readonly happenedAt: bigint },
): boolean {
	return conditions.every((condition) => {
		if (condition.kind === "one_of") return condition.values.includes(event[condition.field]);
		if (condition.kind === "none_of") return !condition.values.includes(event[condition.field]);
		const { from, to } = condition;
		return (from === undefined || event.happenedAt >= from) && (to === undefined || event.happenedAt < to);
	});
}
