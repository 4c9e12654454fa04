import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";

/**
 * How far ahead of the service's clock the `updated_at` of a record may be, in microseconds. One that is further ahead
 * comes from a wrong clock; it counts as the time of receipt.
 */
export const MAX_CLOCK_SKEW = 5n * 60n * 1_000_000n;

/** What decides about the order of two records of a conversation. */
export interface OrderState {
	readonly status: Status;
	/** What {@link orderTime} gives. */
	readonly time: bigint | undefined;
}

/**
 * The time by which a record is ordered: its `updated_at`, or the time of receipt when that is too far in the future.
 * Undefined when the record has no `updated_at`. All times are microseconds since the Unix epoch.
 */
export function orderTime(updatedAt: bigint | undefined, receivedAt: bigint): bigint | undefined {
	return updatedAt !== undefined && updatedAt > receivedAt + MAX_CLOCK_SKEW ? receivedAt : updatedAt;
}

/**
 * The time of the current record, to be compared with that of a record received at `receivedAt`. Undefined when it is too
 * far in the future: the clock was wrong when it was kept, or is wrong now, and later arrivals would lose against it.
 */
export function knownTime(time: bigint | undefined, receivedAt: bigint): bigint | undefined {
	return time !== undefined && time > receivedAt + MAX_CLOCK_SKEW ? undefined : time;
}

/**
 * Decides whether an arriving record becomes current and what it changes.
 *
 * Posts can overtake each other, and only `updated_at` orders them: an older record never becomes current. At equal
 * times, and where a time is missing, the later arrival wins. A `deleting` record is replaced by a newer record only, so
 * that a late post does not revive a deleted conversation.
 */
export function decide(
	current: OrderState | undefined,
	arriving: OrderState,
): { readonly current: boolean; readonly change: UpdateChange } {
	if (current === undefined) {
		const change = arriving.status === Status.DELETING ? UpdateChange.DELETED : UpdateChange.STARTED;
		return { current: true, change };
	}
	const comparable = current.time !== undefined && arriving.time !== undefined;
	const older = comparable && arriving.time < current.time;
	const newer = comparable && arriving.time > current.time;
	const becomesCurrent = current.status === Status.DELETING ? newer : !older;
	const change = becomesCurrent ? changeBetween(current.status, arriving.status) : UpdateChange.UPDATED;
	return { current: becomesCurrent, change };
}

/** What a record changes whose status was another one before. */
export function changeBetween(before: Status, after: Status): UpdateChange {
	if (after === before) return UpdateChange.UPDATED;
	const resumed = before === Status.PAUSED;
	switch (after) {
		case Status.DELETING:
			return UpdateChange.DELETED;
		case Status.PAUSED:
			return UpdateChange.PAUSED;
		case Status.RUNNING:
			return resumed ? UpdateChange.RESUMED : UpdateChange.RUNNING;
		case Status.WAITING_FOR_CONFIRMATION:
			return UpdateChange.WAITING;
		case Status.FINISHED:
			return UpdateChange.FINISHED;
		case Status.ERROR:
			return UpdateChange.FAILED;
		case Status.STUCK:
			return UpdateChange.STUCK;
		default:
			return resumed ? UpdateChange.RESUMED : UpdateChange.UPDATED;
	}
}
