import { connect, type Socket } from "node:net";
import type { Endpoints } from "./clients.ts";

/** Returns `host:port` of a service's HTTP listener. */
export function httpAddress({ http }: Pick<Endpoints, "http">): string {
	return new URL(http).host;
}

/** Connects to `host:port` and ignores errors, which are expected with misbehaving clients. */
export function openSocket(address: string): Socket {
	const { hostname, port } = new URL(`http://${address}`);
	return connect({ host: hostname, port: Number(port), noDelay: true }).on("error", () => undefined);
}

/**
 * Sends bytes and returns everything that is received until the server closes the connection, as Latin-1.
 *
 * @param end whether the client ends its side after sending
 */
export function responseTo(address: string, bytes: string | Uint8Array, end = false): Promise<string> {
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
