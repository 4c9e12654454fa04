import type { Address } from "../config/address.ts";

/** A listener that accepts requests. */
export interface RunningListener {
	/** Where it listens, with the port that the system chose when 0 was asked for. */
	readonly address: Address;
	/** How many connections are open. */
	connections(): number;
	/** Goes on accepting, and tells clients with each answer to go elsewhere. */
	drain(): void;
	/**
	 * Stops accepting, and resolves when the requests under way have their answers and no connection is left.
	 *
	 * @param stall milliseconds after which a connection is cut off on which nothing moves
	 * @param until when all connections are cut off, as performance.now() counts
	 */
	stop(stall: number, until: number): Promise<void>;
	/** Closes all connections at once. */
	kill(): void;
}
