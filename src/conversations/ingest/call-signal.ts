import { ServiceError } from "../../errors.ts";

/** Tells whether nobody waits for the answer to a request any longer. An AbortSignal does. */
export interface CallSignal extends Pick<AbortSignal, "aborted"> {
	/** When the sender stops to wait, in milliseconds since the Unix epoch. Undefined when that is not known. */
	readonly deadline?: number | undefined;
}

/** @throws ServiceError `unavailable` when nobody waits for the answer any longer */
export function assertAwaited({ aborted }: CallSignal): void {
	if (aborted) throw new ServiceError("unavailable", "the sender no longer waits for the answer");
}
