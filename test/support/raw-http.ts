import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Endpoints } from "./clients.ts";

/** An HTTP response as received. */
export interface RawResponse {
	readonly status: number;
	readonly headers: Headers;
	readonly body: string;
}

/** Returns the head of a POST of JSON. `fields` overrides the default headers; undefined removes one. */
export function postHead(path: string, fields: Readonly<Record<string, string | undefined>>): string {
	const given = Object.entries({ Host: "test", "Content-Type": "application/json", ...fields });
	const lines = given.map(([name, value]) => (value === undefined ? "" : `${name}: ${value}\r\n`));
	return `POST ${path} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

/** Returns the bytes of a POST request with its body. */
export function postBytes(
	path: string,
	fields: Readonly<Record<string, string>>,
	body: Uint8Array,
): Buffer<ArrayBuffer> {
	return Buffer.concat([Buffer.from(postHead(path, { ...fields, "Content-Length": String(body.length) })), body]);
}

/** A connection on which a test writes HTTP/1 bytes itself, well-formed or not. */
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
		// A connection that the server closes may end with a reset.
		this.#socket.on("error", () => undefined);
	}

	/** Waits until the connection is established. */
	async connected(): Promise<this> {
		if (this.#socket.connecting) await once(this.#socket, "connect");
		return this;
	}

	/** Writes bytes. Resolves when they have been sent or the connection is closed. */
	write(data: string | Uint8Array): Promise<void> {
		return new Promise((resolve) => this.#socket.write(data, () => resolve()));
	}

	/** Writes the head of a request to a path. An undefined field removes a default header. */
	head(fields: Readonly<Record<string, string | undefined>>, path = "/"): Promise<void> {
		return this.write(postHead(path, fields));
	}

	/** Writes a chunk of a body with `Transfer-Encoding: chunked`. An empty chunk ends the body. */
	chunk(data: string | Buffer): Promise<void> {
		const bytes = Buffer.from(data);
		return this.write(Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]));
	}

	/** Returns the next response. A chunked body is not decoded. */
	async response(): Promise<RawResponse> {
		for (;;) {
			const [head = ""] = this.#received.split("\r\n\r\n", 1);
			const [statusLine = "", ...lines] = head.split("\r\n");
			const fields = lines.map((line): [string, string] => [line.split(":", 1)[0] ?? "", line.replace(/^[^:]*:/, "")]);
			const response = { status: Number(statusLine.split(" ")[1]), headers: new Headers(fields) };
			const rest = this.#received.slice(head.length + 4);
			const length = this.#received.length > head.length + 3 ? this.#bodyLength(response, rest) : undefined;
			if (length !== undefined) {
				this.#received = rest.slice(length);
				return { ...response, body: rest.slice(0, length) };
			}
			if (this.#closed) throw new Error(`the connection is closed after ${JSON.stringify(this.#received)}`);
			const waited = new AbortController();
			await Promise.race(["data", "close"].map((event) => once(this.#socket, event, { signal: waited.signal })));
			waited.abort();
		}
	}

	/** Returns the length of a response's body in bytes (RFC 9112, section 6.3). Undefined while it is incomplete. */
	#bodyLength({ status, headers }: Omit<RawResponse, "body">, rest: string): number | undefined {
		if (status < 200) return 0;
		if (headers.get("Transfer-Encoding") === "chunked") {
			const end = /(?:^|\r\n)0\r\n\r\n/.exec(rest);
			return end === null ? undefined : end.index + end[0].length;
		}
		const length = headers.get("Content-Length");
		if (length === null) return this.#closed ? rest.length : undefined;
		return rest.length >= Number(length) ? Number(length) : undefined;
	}

	/** Ends the client's side of the connection. */
	end(): void {
		this.#socket.end();
	}

	/** Closes the connection with a reset. */
	reset(): void {
		this.#socket.resetAndDestroy();
	}

	/** Stops reading. */
	pause(): void {
		this.#socket.pause();
	}

	/** Whether the connection is still open. */
	get open(): boolean {
		return !this.#socket.destroyed;
	}

	/** Waits until the server has closed the connection. */
	async closed(): Promise<void> {
		// Not events.once: it would fail with the error that precedes the close after a reset.
		if (!this.#closed) await new Promise((resolve) => this.#socket.once("close", resolve));
	}

	[Symbol.dispose](): void {
		this.#socket.destroy();
	}
}
