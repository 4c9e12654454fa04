import { connect, type Socket } from "node:net";
import type { Endpoints } from "./clients.ts";

/** `host:port` of a service's HTTP listener. */
export function httpAddress({ http }: Pick<Endpoints, "http">): string {
	return new URL(http).host;
}

/** Connects to `host:port`, and takes no notice of errors: what becomes of a bad client's connection is its own affair. */
export function openSocket(address: string): Socket {
	const { hostname, port } = new URL(`http://${address}`);
	return connect({ host: hostname, port: Number(port), noDelay: true }).on("error", () => undefined);
}

/**
 * All that comes back for these bytes, as Latin-1, until the server closes the connection.
 *
 * @param end whether the client ends its side after them
 */
export function answerTo(address: string, bytes: string | Uint8Array, end = false): Promise<string> {
	return new Promise((resolve) => {
		const socket = openSocket(address);
		let received = "";
		socket.setEncoding("latin1").on("data", (text: string) => {
			received += text;
		});
		socket.on("close", () => resolve(received));
		if (end) socket.end(bytes);
		else socket.write(bytes);
	});
}
