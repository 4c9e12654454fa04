import { readdir, readFile } from "node:fs/promises";
import { extname, join, relative, sep } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { Route } from "../http/router.ts";

const TYPES: Readonly<Record<string, string>> = {
	".html": "text/html; charset=utf-8",
	".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
	".png": "image/png",
};

/** Headers of every file. The console needs nothing from elsewhere, and nobody may embed it. */
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
	"X-Content-Type-Options": "nosniff",
	"Referrer-Policy": "no-referrer",
	"Cross-Origin-Opener-Policy": "same-origin",
};

/** A file of the console, as it is sent. */
interface ConsoleFile {
	/** Path below the folder, with slashes. */
	readonly path: string;
	readonly content: Buffer;
	readonly compressed: Buffer;
}

/**
 * Returns the routes of the browser console. They need no key, because the files hold no data.
 *
 * @param folder folder of the built console
 * @throws Error when the folder cannot be read
 */
export async function consoleRoutes(basePath: string, folder: string): Promise<readonly Route[]> {
	const files = await filesIn(folder);
	return files.flatMap((file) => {
		const isPage = file.path === "index.html";
		const route = (path: string): Route => ({
			method: "GET",
			path,
			scope: "public",
			handle: async ({ request }) => {
				const zips = /\bgzip\b/.test(request.headers["accept-encoding"] ?? "");
				return {
					status: 200,
					content: zips ? file.compressed : file.content,
					type: TYPES[extname(file.path)] ?? "application/octet-stream",
					headers: {
						...HEADERS,
						// Names of all other files contain a hash of their content.
						"Cache-Control": isPage ? "no-store" : "public, max-age=31536000, immutable",
						Vary: "Accept-Encoding",
						...(zips ? { "Content-Encoding": "gzip" } : {}),
					},
				};
			},
		});
		return isPage ? [route(`${basePath}/`)] : [route(`${basePath}/${file.path}`)];
	});
}

async function filesIn(folder: string): Promise<readonly ConsoleFile[]> {
	const entries = await readdir(folder, { recursive: true, withFileTypes: true });
	return await Promise.all(
		entries
			.filter((entry) => entry.isFile())
			.map(async ({ parentPath, name }) => {
				const file = join(parentPath, name);
				const content = await readFile(file);
				return {
					path: relative(folder, file).split(sep).join("/"),
					content,
					compressed: await promisify(gzip)(content, { level: 9 }),
				};
			}),
	);
}
