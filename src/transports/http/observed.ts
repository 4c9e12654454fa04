import { REQUEST_ID_HEADER, type Requests } from "../../telemetry/requests.ts";
import { peerOf } from "../connections.ts";
import type { HttpHandler, ObservedHandler } from "./http-listener.ts";

/** Wraps a handler: observes each request from its beginning to its end, and sends its id with the response. */
export function observed(requests: Requests, handler: ObservedHandler): HttpHandler {
	return (request, response) => {
		const { method = "", url = "" } = request;
		const target = { transport: "http", method, operation: `${method} ${pathOf(url)}` } as const;
		const headerOf = (name: string): string | undefined => {
			const value = request.headers[name];
			return typeof value === "string" ? value : undefined;
		};
		const observed = requests.begin("http", target, headerOf, () => peerOf(request.socket));
		response.setHeader(REQUEST_ID_HEADER, observed.id);
		// A response that was not ended was cut off by the client or by the service.
		response.on("close", () => observed.end(response.writableEnded, response.statusCode));
		handler(request, response, observed);
	};
}

/** Returns the path of a request URL. It ends at the first question mark (RFC 3986, section 3.4). */
export function pathOf(url: string): string {
	const end = url.indexOf("?");
	return end === -1 ? url : url.slice(0, end);
}
