import type { Route } from "./router.ts";

/**
 * Returns the route that Prometheus scrapes with a key of the scope `metrics`. Its path does not depend on the base
 * path, like those of the probes.
 */
export function metricsRoute(scrape: () => Promise<string>): Route {
	return {
		method: "GET",
		path: "/metrics",
		scope: "metrics",
		handle: async () => ({ status: 200, content: await scrape(), type: "text/plain; version=0.0.4; charset=utf-8" }),
	};
}
