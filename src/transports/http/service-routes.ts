import { readFile } from "node:fs/promises";
import type { Readiness } from "../../telemetry/readiness.ts";
import type { Route } from "./router.ts";

/** Returns the routes of probes, which need no key: `/healthz` for liveness, `/readyz` for readiness. */
export function probeRoutes(readiness: Readiness): Route[] {
	return [
		{
			method: "GET",
			path: "/healthz",
			scope: "public",
			isProbe: true,
			handle: async () => JSON.stringify({ alive: true }),
		},
		{
			method: "GET",
			path: "/readyz",
			scope: "public",
			isProbe: true,
			handle: async () => {
				const { ready, failing } = readiness;
				return { status: ready ? 200 : 503, content: JSON.stringify({ ready, failing }), type: "application/json" };
			},
		},
	];
}

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

/** The OpenAPI document, which `npm run build` makes (scripts/openapi). Its paths have no base path. */
const DOCUMENT = new URL("../../../dist/openapi.json", import.meta.url);

/**
 * Returns the public route of the OpenAPI document, which describes the webhooks and the JSON reads. Its path does not
 * depend on the base path, so that clients find it without knowing the base path.
 *
 * @param basePath prefix of the paths in the document: empty, or with a leading and no trailing slash
 */
export function openApiRoute(basePath: string): Route {
	return {
		method: "GET",
		path: "/openapi.json",
		scope: "public",
		handle: async () => (await readFile(DOCUMENT, "utf8")).replaceAll('"/api/v1/', () => `"${basePath}/api/v1/`),
	};
}
