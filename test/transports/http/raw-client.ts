import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** A client connection that writes raw bytes and reads responses by their Content-Length. */
export class RawClient {
	readonly socket: Socket;
	#received = "";

	constructor(port: number) {
		this.socket = connect({ port, host: "127.0.0.1", noDelay: true });
		// The server may close the connection with a reset.
		this.socket.on("error", () => undefined);
		this.socket.setEncoding("latin1");
		this.socket.on("data", (text: string) => {
			this.#received += text;
		});
	}

	/** Writes bytes and waits until they are sent or the connection is closed. */
	write(data: string | Buffer): Promise<void> {
		return new Promise((resolve) => this.socket.write(data, () => resolve()));
	}

	/** Writes the request line of a POST and these header fields. */
	head(fields: Record<string, string>): Promise<void> {
		const lines = Object.entries({ Host: "test", ...fields }).map(([name, value]) => `${name}: ${value}\r\n`);
		return this.write(`POST / HTTP/1.1\r\n${lines.join("")}\r\n`);
	}

	/** Writes one chunk of a body with `Transfer-Encoding: chunked`; an empty one ends the body. */
	chunk(data: Buffer): Promise<void> {
		return this.write(Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from("\r\n")]));
	}

	/** Returns the parsed JSON body of the next response. */
	async response(): Promise<unknown> {
		for (;;) {
			const [head = "", rest] = this.#received.split("\r\n\r\n", 2);
			const length = Number(/content-length: (\d+)/i.exec(head)?.[1]);
			if (rest !== undefined && rest.length >= length) {
				this.#received = this.#received.slice(head.length + 4 + length);
				return JSON.parse(rest.slice(0, length));
			}
			await once(this.socket, "data");
		}
	}

	[Symbol.dispose](): void {
		this.socket.destroy();
	}
}
