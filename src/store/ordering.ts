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
	/** `created_at` of its life, as {@link comparableTime} returns it. */
	readonly lifeBeganAt: bigint | undefined;
}

/**
 * Returns the time by which a record is ordered: its `updated_at`, or the time of receipt when `updated_at` is too far
 * in the future. Undefined when the record has no `updated_at`. All times are microseconds since the Unix epoch.
 */
export function orderTime(updatedAt: bigint | undefined, receivedAt: bigint): bigint | undefined {
	return updatedAt !== undefined && updatedAt > receivedAt + MAX_CLOCK_SKEW ? receivedAt : updatedAt;
}

/**
 * Returns the time of a record for the comparison with a record received at `receivedAt`. Undefined when it is too far
 * in the future: then the clock was wrong when the record was stored, or is wrong now, and later arrivals would lose
 * against that time.
 */
export function comparableTime(time: bigint | undefined, receivedAt: bigint): bigint | undefined {
	return time !== undefined && time > receivedAt + MAX_CLOCK_SKEW ? undefined : time;
}

/**
 * Decides whether an arriving record becomes current, and which change it is.
 *
 * Posts can overtake each other, and an id can be used again after a deletion. Records with equal `created_at` belong to
 * one life of the conversation. A record of a later life replaces one of an earlier life, never the reverse. A record
 * without `created_at` belongs to the present life.
 *
 * In one life, a `deleting` record replaces all others, whatever its `updated_at`: a sender that was restarted may have
 * gone back to an older state before the deletion. No other record of the same life replaces it. Otherwise an older
 * record never becomes current. When times are equal or missing, the later arrival wins, except over a deletion.
 */
export function decide(
	current: OrderState | undefined,
	arriving: OrderState,
): { readonly current: boolean; readonly change: UpdateChange } {
	const first = arriving.status === Status.DELETING ? UpdateChange.DELETED : UpdateChange.STARTED;
	if (current === undefined) return { current: true, change: first };
	const life = compare(arriving.lifeBeganAt, current.lifeBeganAt);
	if (life > 0) return { current: true, change: first };
	if (life < 0 || !replacesInSameLife(current, arriving)) return { current: false, change: UpdateChange.UPDATED };
	return { current: true, change: changeBetween(current.status, arriving.status) };
}

function replacesInSameLife(current: OrderState, arriving: OrderState): boolean {
	const order = compare(arriving.time, current.time);
	if (arriving.status === Status.DELETING) return current.status !== Status.DELETING || order > 0;
	return current.status !== Status.DELETING && order >= 0;
}

/** Returns a positive number if `a` is later than `b`, a negative one if it is earlier; 0 also when one is unknown. */
export function compare(a: bigint | undefined, b: bigint | undefined): number {
	return a === undefined || b === undefined ? 0 : Number(a > b) - Number(a < b);
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
