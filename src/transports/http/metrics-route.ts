import type { Route } from "./router.ts";

/**
 * Gives metrics to Prometheus, which needs a key with the scope `metrics`. The path does not depend on the base path, as
 * those of the probes.
 */
export function metricsRoute(scrape: () => Promise<string>): Route {
	return {
		method: "GET",
		path: "/metrics",
		scope: "metrics",
		takesBearer: true,
		handle: async () => ({ status: 200, text: await scrape(), type: "text/plain; version=0.0.4; charset=utf-8" }),
	};
}
