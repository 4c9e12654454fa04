/**
 * Options of a connection that takes the lock of a database that a running service has open. The service also writes
 * after its answer, such as the text index, so the lock can be held for a moment.
 */
export const LOCK_TIMEOUT = { timeout: 30_000 } as const;
