import { isJsonMembers, type Json, type JsonMembers, memberOf } from "./json.ts";
import type { Statement } from "./statements.ts";

/** What stands in an event in place of a secret. */
const PLACEHOLDER = "**********";

/** Lists of the record's metrics that a state update of `stats` leaves out. A full state has them. */
const PER_CALL_LISTS = ["costs", "response_latencies", "token_usages"] as const;

/**
 * The value that a member of the record gets when an event tells `told`.
 *
 * An event says less than a posted record: it shows placeholders for secrets, which a posted record leaves out or has
 * as null, and shortened metrics. What it does not say stays as it is.
 *
 * @param present the member's value now; undefined when it has none
 * @returns undefined when nothing but a placeholder is told
 */
export function valueToldOver(
	{ member, value, leavesOutNulls }: Statement,
	present: Json | undefined,
): Json | undefined {
	const told = leavesOutNulls ? withNulls(value, present) : value;
	return withoutPlaceholders(member === "stats" ? withPerCallLists(told, present) : told, present);
}

/** Adds the members that are left out of objects and are null now. */
function withNulls(told: Json, present: Json | undefined): Json {
	if (Array.isArray(told) && Array.isArray(present)) return told.map((item, index) => withNulls(item, present[index]));
	if (!isJsonMembers(told) || !isJsonMembers(present)) return told;
	const members: JsonMembers = { ...told };
	for (const name of Object.keys(present)) {
		const [value, before] = [memberOf(told, name), present[name]];
		if (value !== undefined) members[name] = withNulls(value, before);
		else if (before === null) members[name] = null;
	}
	return members;
}

/**
 * Puts the present value in the place of each placeholder. One without a present value is left out, and so is an
 * object of which nothing else remains and which is not there now. In an array the items keep their places.
 */
function withoutPlaceholders(told: Json, present: Json | undefined): Json | undefined {
	if (told === PLACEHOLDER) return present;
	if (Array.isArray(told)) {
		const items = Array.isArray(present) ? present : [];
		return told.map((item, index) => withoutPlaceholders(item, items[index]) ?? (isJsonMembers(item) ? {} : item));
	}
	if (!isJsonMembers(told)) return told;
	const before = isJsonMembers(present) ? present : {};
	const members: JsonMembers = { ...told };
	let left = 0;
	for (const name of Object.keys(told)) {
		const value = withoutPlaceholders(told[name] ?? null, memberOf(before, name));
		if (value === undefined) {
			delete members[name];
			continue;
		}
		members[name] = value;
		left++;
	}
	const nothingSaid = left === 0 && Object.keys(told).length > 0;
	return nothingSaid && !isJsonMembers(present) ? present : members;
}

/** Adds to each usage's metrics the lists that they leave out, as they stand now. */
function withPerCallLists(told: Json, present: Json | undefined): Json {
	if (!isJsonMembers(told) || !isJsonMembers(told.usage_to_metrics)) return told;
	const now = isJsonMembers(present) && isJsonMembers(present.usage_to_metrics) ? present.usage_to_metrics : {};
	const usages = Object.entries(told.usage_to_metrics).map(([usage, metrics]): [string, Json] => {
		const before = memberOf(now, usage);
		if (!isJsonMembers(metrics) || !isJsonMembers(before)) return [usage, metrics];
		const lists: JsonMembers = {};
		for (const list of PER_CALL_LISTS) if (before[list] !== undefined) lists[list] = before[list];
		return [usage, { ...lists, ...metrics }];
	});
	return { ...told, usage_to_metrics: Object.fromEntries(usages) };
}
