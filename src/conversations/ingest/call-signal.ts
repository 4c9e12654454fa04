import { ServiceError } from "../../errors.ts";

/** Signal that nobody waits for the response to a request any longer. An AbortSignal is one. */
export interface CallSignal extends Pick<AbortSignal, "aborted"> {
	/** When the sender stops waiting, in milliseconds since the Unix epoch. Undefined when unknown. */
	readonly deadline?: number | undefined;
}

/** @throws ServiceError `unavailable` when nobody waits for the response any longer */
export function assertSenderWaits({ aborted }: CallSignal): void {
	if (aborted) throw new ServiceError("unavailable", "the sender no longer waits for the response");
}
