import { REDACTED } from "../../record/secrets/secret-walk.ts";
import { hasUserinfo, replaceUserinfo } from "../../record/secrets/userinfo.ts";
import { REQUEST_ID_HEADER, type Requests } from "../../telemetry/requests.ts";
import { peerOf } from "../connections.ts";
import type { HttpHandler, ObservedHandler } from "./http-listener.ts";
import { percentDecode } from "./percent-decode.ts";

/** Wraps a handler: observes each request from its beginning to its end, and sends its id with the response. */
export function observed(requests: Requests, handler: ObservedHandler): HttpHandler {
	return (request, response) => {
		const { method = "", url = "" } = request;
		const target = { transport: "http", method, operation: `${method} ${shownPath(pathOf(url))}` } as const;
		const headerOf = (name: string): string | undefined => {
			const value = request.headers[name];
			return typeof value === "string" ? value : undefined;
		};
		const seen = requests.begin("http", target, headerOf, () => peerOf(request.socket));
		response.setHeader(REQUEST_ID_HEADER, seen.id);
		// A response that was not ended was cut off by the client or by the service.
		response.on("close", () => seen.end(response.writableEnded, response.statusCode));
		handler(request, response, seen);
	};
}

/** Returns the path of a request URL. It ends at the first question mark (RFC 3986, section 3.4). */
export function pathOf(url: string): string {
	const end = url.indexOf("?");
	return end === -1 ? url : url.slice(0, end);
}

/** Returns a path for the log, in which a user name and password of a URL are replaced, also of an encoded URL. */
function shownPath(path: string): string {
	if (!/@|%40/.test(path)) return path;
	const decoded = percentDecode(path) ?? path;
	return hasUserinfo(decoded) ? replaceUserinfo(decoded, () => REDACTED) : path;
}
