import { REQUEST_ID_HEADER, type Requests } from "../../telemetry/requests.ts";
import type { HttpAnswer, ObservedAnswer } from "./http-listener.ts";

/** Begins and ends the observation of each request, and gives its id with the answer. */
export function observed(requests: Requests, answer: ObservedAnswer): HttpAnswer {
	return (request, response) => {
		const { method = "", url = "" } = request;
		const target = { transport: "http", method, operation: `${method} ${pathOf(url)}` } as const;
		const seen = requests.begin("http", target, (name) => {
			const value = request.headers[name];
			return typeof value === "string" ? value : undefined;
		});
		response.setHeader(REQUEST_ID_HEADER, seen.id);
		// An answer that was begun and not ended was cut off, by either side.
		response.on("close", () => seen.end(response.writableEnded, response.statusCode));
		answer(request, response, seen);
	};
}

/** The path of a URL of a request: only the first question mark ends it (RFC 3986, section 3.4). */
export function pathOf(url: string): string {
	const end = url.indexOf("?");
	return end === -1 ? url : url.slice(0, end);
}
