import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Endpoints } from "./clients.ts";

/** An HTTP response as it came over the wire. */
export interface RawResponse {
	readonly status: number;
	readonly headers: Headers;
	readonly body: string;
}

/** A connection on which a test writes HTTP/1 itself, well-formed or not. */
export class RawHttp {
	readonly #socket: Socket;
	#received = "";
	#closed = false;

	constructor({ http }: Pick<Endpoints, "http">) {
		const { hostname, port } = new URL(http);
		this.#socket = connect({ host: hostname, port: Number(port), noDelay: true });
		this.#socket.setEncoding("latin1");
		this.#socket.on("data", (text: string) => {
			this.#received += text;
		});
		this.#socket.on("close", () => {
			this.#closed = true;
		});
		// A connection that the server cuts off may end in a reset.
		this.#socket.on("error", () => undefined);
	}

	/** Waits until the connection stands. */
	async connected(): Promise<this> {
		if (this.#socket.connecting) await once(this.#socket, "connect");
		return this;
	}

	/** Writes bytes; resolves when they have left, or the connection is gone. */
	write(data: string | Uint8Array): Promise<void> {
		return new Promise((resolve) => this.#socket.write(data, () => resolve()));
	}

	/** Writes the head of a request to the webhook. A field of undefined is left out. */
	head(fields: Readonly<Record<string, string | undefined>>, path: string): Promise<void> {
		const given = Object.entries({ Host: "test", "Content-Type": "application/json", ...fields });
		const lines = given.map(([name, value]) => (value === undefined ? "" : `${name}: ${value}\r\n`));
		return this.write(`POST ${path} HTTP/1.1\r\n${lines.join("")}\r\n`);
	}

	/** Writes one chunk of a body with `Transfer-Encoding: chunked`; an empty one ends the body. */
	chunk(data: string): Promise<void> {
		return this.write(`${Buffer.byteLength(data).toString(16)}\r\n${data}\r\n`);
	}

	/** The next response; its body must have a Content-Length, or end with the connection. */
	async response(): Promise<RawResponse> {
		for (;;) {
			const end = this.#received.indexOf("\r\n\r\n");
			if (end !== -1) {
				const [statusLine = "", ...lines] = this.#received.slice(0, end).split("\r\n");
				const headers = new Headers(
					lines.map((line): [string, string] => [line.split(":", 1)[0] ?? "", line.replace(/^[^:]*:/, "")]),
				);
				const status = Number(statusLine.split(" ")[1]);
				const rest = this.#received.slice(end + 4);
				const length = headers.get("Content-Length") ?? (status < 200 ? "0" : undefined);
				if (length === undefined ? this.#closed : rest.length >= Number(length)) {
					const body = rest.slice(0, length === undefined ? undefined : Number(length));
					this.#received = rest.slice(body.length);
					return { status, headers, body };
				}
			}
			if (this.#closed) throw new Error(`the connection is closed after ${JSON.stringify(this.#received)}`);
			await Promise.race([once(this.#socket, "data"), once(this.#socket, "close")]);
		}
	}

	/** Waits until the server has closed the connection. */
	async closed(): Promise<void> {
		if (!this.#closed) await once(this.#socket, "close");
	}

	[Symbol.dispose](): void {
		this.#socket.destroy();
	}
}
