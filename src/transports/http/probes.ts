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
