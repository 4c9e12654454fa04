import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import type { Address } from "../../config.ts";
import type { Listener } from "../listener.ts";

/**
 * Listens for HTTP/1.1.
 *
 * @throws Error when the address cannot be listened on
 */
export async function listenHttp(address: Address, answer: RequestListener): Promise<Listener> {
	const server = createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
		// While stopping, each answer is the last one of its connection.
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
			server.closeIdleConnections();
			await closed;
		},
		kill: () => server.closeAllConnections(),
	};
}

function portOf(address: AddressInfo | string | null): number {
	return typeof address === "object" && address !== null ? address.port : 0;
}
