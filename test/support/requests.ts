import { Requests } from "../../src/telemetry/requests.ts";
import { silentLog } from "./silent-log.ts";

/** What listeners tell of requests, for tests that look at none of it. */
export function unseenRequests(): Requests {
	return new Requests({ log: silentLog(), metrics: { ended() {}, violated() {} } });
}
