import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { ServiceError } from "../../errors.ts";
import type { Requests } from "../../telemetry/requests.ts";
import { isEndless } from "../timeouts.ts";

/** Published by Node.js when the header of a request has arrived, before grpc-js sees it. */
const CREATED = "http2.server.stream.created";

/**
 * Handles what grpc-js decides by the header of a call before any interceptor: takes away a deadline that is too far
 * away for its timers, and tells of a call of an unknown method.
 *
 * @param port of the listener, because the channel tells of all servers in the process
 * @param isKnown whether there is a method at a path
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
		const seen = requests.begin("grpc", { transport: "grpc", operation: path }, (name) => {
			const value = headers[name];
			return typeof value === "string" ? value : undefined;
		});
		seen.failed(new ServiceError("not_found", "There is no such method"));
		seen.end(true);
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
