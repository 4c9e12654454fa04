import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

/** A proxy that simulates network failures: it can break connections, or stop forwarding without closing them. */
export class TcpProxy implements AsyncDisposable {
	readonly port: number;
	readonly #server: Server;
	readonly #pairs = new Set<readonly [Socket, Socket]>();

	private constructor(server: Server, port: number) {
		this.#server = server;
		this.port = port;
	}

	/** @param target returns the port to which a new connection is forwarded */
	static async start(target: () => number): Promise<TcpProxy> {
		const server = createServer();
		server.listen(0, "127.0.0.1");
		await once(server, "listening");
		const proxy = new TcpProxy(server, portOf(server.address()));
		server.on("connection", (near) => proxy.#join(near, connect(target(), "127.0.0.1")));
		return proxy;
	}

	/** Number of connections through the proxy. */
	get open(): number {
		return this.#pairs.size;
	}

	/** Breaks all connections: with a reset, or as if both sides had closed them. */
	cut(reset: boolean): void {
		for (const pair of this.#pairs)
			for (const socket of pair) {
				if (reset) socket.resetAndDestroy();
				else socket.destroy();
			}
	}

	/** Stops forwarding on all existing connections without closing them. */
	fallSilent(): void {
		for (const [near, far] of this.#pairs) {
			near.unpipe();
			far.unpipe();
		}
	}

	async [Symbol.asyncDispose](): Promise<void> {
		const closed = once(this.#server, "close");
		this.#server.close();
		this.cut(false);
		await closed;
	}

	#join(near: Socket, far: Socket): void {
		const pair = [near, far] as const;
		this.#pairs.add(pair);
		near.pipe(far);
		far.pipe(near);
		for (const socket of pair) {
			// When one side closes, the other side is closed too.
			socket.on("error", () => undefined);
			socket.on("close", () => {
				this.#pairs.delete(pair);
				near.destroy();
				far.destroy();
			});
		}
	}
}

function portOf(address: AddressInfo | string | null): number {
	if (typeof address !== "object" || address === null) throw new Error("the proxy does not listen");
	return address.port;
}
