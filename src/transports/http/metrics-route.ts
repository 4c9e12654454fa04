import type { Route } from "./router.ts";

/** Path of the metrics; it does not depend on the base path, as that of the probes. */
export const METRICS_PATH = "/metrics";

/** Gives metrics to Prometheus, which needs a key with the scope `metrics`. */
export function metricsRoute(scrape: () => Promise<string>): Route {
	return {
		method: "GET",
		path: METRICS_PATH,
		scope: "metrics",
		takesBearer: true,
		handle: async () => ({ status: 200, text: await scrape(), type: "text/plain; version=0.0.4; charset=utf-8" }),
	};
}
