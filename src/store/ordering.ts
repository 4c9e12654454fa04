import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";

/**
 * Microseconds by which the `updated_at` of a record may be ahead of the service's clock. A time further ahead comes
 * from a wrong clock; the time of receipt replaces it.
 */
export const MAX_CLOCK_SKEW = 5n * 60n * 1_000_000n;

/** The values of a record that decide the order of two records of a conversation. */
export interface OrderState {
	readonly status: Status;
	/** The result of {@link orderTime} or {@link comparableTime}. */
	readonly time: bigint | undefined;
}

/**
 * Returns the time by which a record is ordered: its `updated_at`, or the time of receipt when `updated_at` is too far
 * in the future. Undefined when the record has no `updated_at`. All times are microseconds since the Unix epoch.
 */
export function orderTime(updatedAt: bigint | undefined, receivedAt: bigint): bigint | undefined {
	return updatedAt !== undefined && updatedAt > receivedAt + MAX_CLOCK_SKEW ? receivedAt : updatedAt;
}

/**
 * Returns the order time of the current record for the comparison with a record received at `receivedAt`. Undefined
 * when it is too far in the future: then the clock was wrong when the record was stored, or is wrong now, and later
 * arrivals would lose against that time.
 */
export function comparableTime(time: bigint | undefined, receivedAt: bigint): bigint | undefined {
	return time !== undefined && time > receivedAt + MAX_CLOCK_SKEW ? undefined : time;
}

/**
 * Decides whether an arriving record becomes current, and which change it is.
 *
 * Posts can overtake each other, and only `updated_at` orders them: an older record never becomes current. When times
 * are equal or missing, the later arrival wins. Only a newer record replaces a `deleting` one, so that a late post does
 * not revive a deleted conversation.
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

/** Returns the change that a transition from one status to another is. */
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
