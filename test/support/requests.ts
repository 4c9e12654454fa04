import { createLogger } from "../../src/telemetry/log.ts";
import { Requests } from "../../src/telemetry/requests.ts";

/** What listeners tell of requests, for tests that look at none of it. */
export function unseenRequests(): Requests {
	return new Requests({ log: createLogger("silent"), metrics: { ended() {}, violated() {} } });
}
