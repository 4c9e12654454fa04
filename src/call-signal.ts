import { ServiceError } from "./errors.ts";

/** Signal that the sender of a request no longer waits for the response. An AbortSignal is one. */
export interface CallSignal extends Pick<AbortSignal, "aborted"> {
	/** When the sender stops waiting, in milliseconds since the Unix epoch. Undefined when unknown. */
	readonly deadline?: number | undefined;
}

/** The error for a request whose sender no longer waits for the response. */
export const SENDER_GONE = new ServiceError("unavailable", "the sender no longer waits for the response");

/** Returns whether the sender no longer waits for the response. Without a signal, it always waits. */
export function isSenderGone(signal: CallSignal | undefined): boolean {
	return signal !== undefined && (signal.aborted || isPast(signal.deadline));
}

/** Returns whether a deadline (milliseconds since the Unix epoch) has passed. Undefined is never past. */
export function isPast(deadline: number | undefined): boolean {
	return deadline !== undefined && deadline < Date.now();
}
