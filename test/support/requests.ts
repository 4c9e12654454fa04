import { Requests } from "../../src/telemetry/requests.ts";
import { silentLog } from "./silent-log.ts";

/** Returns the observer that listeners need, for tests that ignore what it records. */
export function unobservedRequests(log = silentLog()): Requests {
	return new Requests({ log, metrics: { ended() {}, violated() {}, unauthenticated() {} } });
}
