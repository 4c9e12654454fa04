import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** Connection preface of a client (RFC 9113, section 3.4). */
export const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/** Frame types (RFC 9113, section 6). */
export const FRAME = { data: 0, headers: 1, rstStream: 3, settings: 4, ping: 6, goaway: 7, continuation: 9 } as const;

/** Returns the bytes of a frame, well-formed or not. */
export function frame(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
	const head = Buffer.alloc(9);
	head.writeUIntBE(payload.length, 0, 3);
	head[3] = type;
	head[4] = flags;
	head.writeUInt32BE(stream, 5);
	return Buffer.concat([head, payload]);
}

/** Returns the payloads of all frames of a type. The last frame may be incomplete. */
export function framesOf(bytes: Buffer, type: number): Buffer[] {
	const found: Buffer[] = [];
	for (let at = 0; at + 9 <= bytes.length; ) {
		const end = at + 9 + bytes.readUIntBE(at, 3);
		if (bytes[at + 3] === type) found.push(bytes.subarray(at + 9, end));
		at = end;
	}
	return found;
}

/**
 * Encodes a header block of literals without indexing (RFC 7541, section 6.2.2). Names and values must be shorter than
 * 127 bytes.
 */
export function headerBlock(fields: Readonly<Record<string, string>>): Buffer {
	const text = (value: string) => Buffer.concat([Buffer.from([value.length]), Buffer.from(value, "latin1")]);
	return Buffer.concat(Object.entries(fields).flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]));
}

/** A connection on which a test writes HTTP/2 frames itself. */
export class RawHttp2 {
	readonly #socket: Socket;
	readonly #closed: Promise<unknown>;
	#received = Buffer.alloc(0);

	private constructor(socket: Socket) {
		this.#socket = socket;
		this.#closed = new Promise((resolve) => socket.on("close", resolve));
		socket.on("data", (bytes: Buffer) => {
			this.#received = Buffer.concat([this.#received, bytes]);
		});
		socket.on("error", () => undefined);
	}

	/** Connects to `host:port` and sends the preface. */
	static async connect(address: string): Promise<RawHttp2> {
		const { hostname, port } = new URL(`http://${address}`);
		const socket = connect({ host: hostname, port: Number(port), noDelay: true });
		const client = new RawHttp2(socket);
		await once(socket, "connect");
		await client.write(Buffer.concat([Buffer.from(PREFACE), frame(FRAME.settings, 0, 0)]));
		return client;
	}

	/** Writes bytes. Resolves when they have been sent or the connection is closed. */
	write(bytes: Uint8Array): Promise<void> {
		return new Promise((resolve) => {
			if (this.#socket.destroyed) resolve();
			else this.#socket.write(bytes, () => resolve());
		});
	}

	/** Whether the connection is still open. */
	get open(): boolean {
		return !this.#socket.destroyed;
	}

	/** Stops reading. */
	pause(): void {
		this.#socket.pause();
	}

	/** Returns the payloads of the received frames of a type. */
	frames(type: number): Buffer[] {
		return framesOf(this.#received, type);
	}

	/** Waits until the server has closed the connection. */
	async closed(): Promise<void> {
		await this.#closed;
	}

	[Symbol.dispose](): void {
		this.#socket.destroy();
	}
}
