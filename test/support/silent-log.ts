import { createLogger, type Logger } from "../../src/telemetry/log.ts";

/** Returns a log that writes nothing. */
export function silentLog(): Logger {
	return createLogger("silent", { write: () => undefined });
}
