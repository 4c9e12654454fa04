import { ServiceError } from "../errors.ts";
import type { GroupRequest } from "./repetition.ts";

/** The error for a request whose sender no longer waits. */
export const SENDER_GONE = new ServiceError("unavailable", "the sender no longer waits for the response");

/**
 * Returns whether the sender of a request no longer waits. To be called before the request is written.
 *
 * @param now in milliseconds since the Unix epoch
 */
export function isSenderGone(request: GroupRequest, now: number): boolean {
	const { senderDeadline } = "update" in request ? request.update : request;
	return senderDeadline !== undefined && senderDeadline < now;
}
