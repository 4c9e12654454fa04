import { ServiceError } from "../../errors.ts";

/** Tells whether nobody waits for the answer to a request any longer. An AbortSignal does. */
export type CallSignal = Pick<AbortSignal, "aborted">;

/** @throws ServiceError `unavailable` when nobody waits for the answer any longer */
export function assertAwaited({ aborted }: CallSignal): void {
	if (aborted) throw new ServiceError("unavailable", "the sender no longer waits for the answer");
}
