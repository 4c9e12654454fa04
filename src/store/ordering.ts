import type { Change } from "./store.ts";

/** What deciding about an update needs to know of the record that is current when it arrives. */
export interface CurrentState {
	readonly status: string;
	/** Microseconds since the Unix epoch; undefined when the record has no `updated_at`. */
	readonly updatedAt: bigint | undefined;
}

/**
 * Decides whether an arriving record becomes current and what it changes.
 *
 * Posts can overtake each other, and only `updated_at` orders them: an older record never becomes current, at equal
 * times the later arrival wins, and a time that is missing on either side cannot be compared, so the later arrival
 * wins as well. A `deleting` record gives way only to one that is certainly newer, so that a late repetition of an
 * earlier post does not revive a deleted conversation.
 */
export function decide(
	current: CurrentState | undefined,
	arriving: CurrentState,
): { current: boolean; change: Change } {
	if (current === undefined) return { current: true, change: arriving.status === "deleting" ? "deleted" : "started" };
	const comparable = current.updatedAt !== undefined && arriving.updatedAt !== undefined;
	const older = comparable && arriving.updatedAt < current.updatedAt;
	const newer = comparable && arriving.updatedAt > current.updatedAt;
	const becomesCurrent = current.status === "deleting" && arriving.status !== "deleting" ? newer : !older;
	return {
		current: becomesCurrent,
		change: becomesCurrent ? changeBetween(current.status, arriving.status) : "updated",
	};
}

function changeBetween(before: string, after: string): Change {
	if (after === before) return "updated";
	if (after === "deleting") return "deleted";
	if (after === "paused") return "paused";
	return before === "paused" ? "resumed" : "updated";
}
