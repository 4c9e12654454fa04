import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import type { Address } from "../../config.ts";
import type { RunningListener } from "../running-listener.ts";

/** How often connections that have become idle are closed while the listener stops, in milliseconds. */
const IDLE_SWEEP = 50;

/**
 * Listens for HTTP/1.1.
 *
 * @throws Error when the address cannot be listened on
 */
export async function listenHttp(address: Address, answer: RequestListener): Promise<RunningListener> {
	const server = createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
		// While the listener stops, each answer is the last one of its connection.
		if (!server.listening) response.setHeader("Connection", "close");
		answer(request, response);
	});
	server.listen(address.port, address.host);
	await once(server, "listening");
	return {
		address: { host: address.host, port: portOf(server.address()) },
		stop: async () => {
			const closed = once(server, "close");
			server.close();
			// A stream that began before leaves its connection open and idle when it ends.
			const sweep = setInterval(() => server.closeIdleConnections(), IDLE_SWEEP);
			await closed;
			clearInterval(sweep);
		},
		kill: () => server.closeAllConnections(),
	};
}

function portOf(address: AddressInfo | string | null): number {
	return typeof address === "object" && address !== null ? address.port : 0;
}
