import { readdir, readFile } from "node:fs/promises";
import { extname, join, relative, sep } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { Readiness } from "../../telemetry/readiness.ts";
import type { ContentResponse } from "./exchange.ts";
import type { Route } from "./router.ts";

/** Returns the routes of probes, which need no key: `/healthz` for liveness, `/readyz` for readiness. */
export function probeRoutes(readiness: Readiness): Route[] {
	const probe = { method: "GET", scope: "public", isProbe: true } as const;
	return [
		{ ...probe, path: "/healthz", handle: async () => JSON.stringify({ alive: true }) },
		{
			...probe,
			path: "/readyz",
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
 */
export function openApiRoute(basePath: string): Route {
	return publicRoute("/openapi.json", async () =>
		(await readFile(DOCUMENT, "utf8")).replaceAll('"/api/v1/', () => `"${basePath}/api/v1/`),
	);
}

const TYPES: Readonly<Record<string, string>> = {
	".html": "text/html; charset=utf-8",
	".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
};

/** Headers of every file. The console needs nothing from elsewhere, and no page may embed it. */
const HEADERS: Readonly<Record<string, string>> = {
	"Content-Security-Policy": [
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'self'",
		"font-src 'self'",
		"connect-src 'self'",
		"img-src 'self' data:",
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
	].join("; "),
	"Referrer-Policy": "no-referrer",
	"Cross-Origin-Opener-Policy": "same-origin",
	Vary: "Accept-Encoding",
};

const PAGE = "index.html";

/** Returns the routes of the browser console. They need no key, because the files hold no data. */
export async function consoleRoutes(basePath: string, folder: string): Promise<readonly Route[]> {
	const entries = await readdir(folder, { recursive: true, withFileTypes: true });
	const routes = entries
		.filter((entry) => entry.isFile())
		.map(({ parentPath, name }): Route => {
			const file = join(parentPath, name);
			const path = relative(folder, file).split(sep).join("/");
			return publicRoute(`${basePath}/${path === PAGE ? "" : path}`, servedFile(file, path === PAGE));
		});
	if (basePath === "") return routes;
	const moved = { status: 308, content: "", type: "text/plain", headers: { Location: `${basePath}/` } };
	return [...routes, publicRoute(basePath, async () => moved)];
}

function publicRoute(path: string, handle: Route["handle"]): Route {
	return { method: "GET", path, scope: "public", handle };
}

/** Returns the handler of a file. It is read and compressed at its first request, and again while that fails. */
function servedFile(file: string, isPage: boolean): Route["handle"] {
	const type = TYPES[extname(file)] ?? "application/octet-stream";
	// The names of all other files contain a hash of their content.
	const caching = isPage ? "no-store" : "public, max-age=31536000, immutable";
	let read: Promise<{ readonly content: Buffer; readonly zipped: Buffer }> | undefined;
	const load = async () => {
		const content = await readFile(file);
		return { content, zipped: await promisify(gzip)(content) };
	};
	return async ({ request }): Promise<ContentResponse> => {
		read ??= load().catch((error: unknown) => {
			read = undefined;
			throw error;
		});
		const { content, zipped } = await read;
		const headers = { ...HEADERS, "Cache-Control": caching };
		return /\bgzip\b/.test(request.headers["accept-encoding"] ?? "")
			? { status: 200, content: zipped, type, headers: { ...headers, "Content-Encoding": "gzip" } }
			: { status: 200, content, type, headers };
	};
}
