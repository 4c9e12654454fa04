import { ServiceError } from "../errors.ts";
import type { GroupRequest } from "./repetition.ts";

/** What is answered to a sender that no longer waits. */
export const LATE = new ServiceError("unavailable", "the sender no longer waits for the answer");

/**
 * Whether the sender of what has not begun to be stored no longer waits.
 *
 * @param now in milliseconds since the Unix epoch
 */
export function isLate(request: GroupRequest, now: number): boolean {
	const { awaitedUntil } = "update" in request ? request.update : request;
	return awaitedUntil !== undefined && awaitedUntil < now;
}
