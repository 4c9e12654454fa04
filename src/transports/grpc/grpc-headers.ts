import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { ServiceError } from "../../errors.ts";
import type { Requests } from "../../telemetry/requests.ts";
import { isEndless } from "../timeouts.ts";

/** Channel on which Node.js publishes that the header of an HTTP/2 request has arrived, before grpc-js sees it. */
const CREATED = "http2.server.stream.created";

/**
 * Handles two cases that grpc-js decides by the header of a call before any interceptor runs. It removes a timeout that
 * is too long for the timers of grpc-js, and it reports calls of unknown methods to `requests`.
 *
 * @param port port of the listener, because the channel reports the requests of all servers in the process
 * @param isKnown whether there is a method at a path
 * @returns a disposable that ends this handling
 */
export function watchHeaders(port: number, isKnown: (path: string) => boolean, requests: Requests): Disposable {
	const created = (message: unknown): void => {
		const headers = member(message, "headers");
		const type = member(headers, "content-type");
		if (!isObject(headers) || typeof type !== "string" || !/^application\/grpc(?!-web)/.test(type)) return;
		const timeout = headers["grpc-timeout"];
		if (typeof timeout === "string" && isEndless(timeout)) delete headers["grpc-timeout"];
		const path = String(headers[":path"]);
		if (isKnown(path)) return;
		const socket = member(member(member(message, "stream"), "session"), "socket");
		if (member(socket, "localPort") !== port) return;
		const observed = requests.begin("grpc", { transport: "grpc", operation: path }, (name) => {
			const value = headers[name];
			return typeof value === "string" ? value : undefined;
		});
		observed.failed(new ServiceError("not_found", "There is no such method"));
		observed.end(true);
	};
	subscribe(CREATED, created);
	return { [Symbol.dispose]: () => unsubscribe(CREATED, created) };
}

function isObject(value: unknown): value is Record<string, unknown> {
	return typeof value === "object" && value !== null;
}

function member(value: unknown, name: string): unknown {
	return isObject(value) ? value[name] : undefined;
}
