import type { Address } from "../config/address.ts";

/** A listener that accepts requests. */
export interface RunningListener {
	/** Address that it listens on. Contains the port that the system chose if port 0 was requested. */
	readonly address: Address;
	/** Returns the number of open connections. */
	connections(): number;
	/** Asks HTTP/1.1 clients, with each response, to use another connection. Further connections are still accepted. */
	drain(): void;
	/**
	 * Stops accepting connections. Resolves when the requests under way have their responses and no connection is left.
	 *
	 * @param stall milliseconds after which an idle connection is cut off
	 * @param until time at which all connections are cut off, in milliseconds of `performance.now()`
	 */
	stop(stall: number, until: number): Promise<void>;
	/** Stops accepting connections, and closes all open ones at once. */
	kill(): void;
}
