import { readdir, readFile } from "node:fs/promises";
import { extname, join, relative, sep } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { ContentResponse } from "../http/exchange.ts";
import type { AnsweringRoute, Route } from "../http/router.ts";

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

/**
 * Returns the routes of the browser console. They need no key, because the files hold no data.
 *
 * @throws Error when the folder cannot be read
 */
export async function consoleRoutes(basePath: string, folder: string): Promise<readonly Route[]> {
	const entries = await readdir(folder, { recursive: true, withFileTypes: true });
	const routes = entries
		.filter((entry) => entry.isFile())
		.map(({ parentPath, name }): Route => {
			const file = join(parentPath, name);
			const path = relative(folder, file).split(sep).join("/");
			return route(`${basePath}/${path === PAGE ? "" : path}`, servedFile(file, path === PAGE));
		});
	if (basePath === "") return routes;
	const moved = { status: 308, content: "", type: "text/plain", headers: { Location: `${basePath}/` } };
	return [...routes, route(basePath, async () => moved)];
}

function route(path: string, handle: AnsweringRoute["handle"]): Route {
	return { method: "GET", path, scope: "public", handle };
}

/** Returns the handler of a file. It is read and compressed at its first request, and again while that fails. */
function servedFile(file: string, isPage: boolean): AnsweringRoute["handle"] {
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
