import { createLogger, type Log } from "../../src/telemetry/log.ts";

/** Returns a log that writes nothing. */
export function silentLog(): Log {
	return createLogger("silent", { write: () => undefined });
}
