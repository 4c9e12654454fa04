import type { Address } from "../config.ts";

/** A listener that accepts requests. */
export interface RunningListener {
	/** Where it listens, with the port that the system chose when 0 was asked for. */
	readonly address: Address;
	/** Stops accepting, and resolves when the requests under way have their answers. May be called again. */
	stop(): Promise<void>;
	/** Closes all connections at once. */
	kill(): void;
}
