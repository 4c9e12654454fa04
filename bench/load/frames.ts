import { connect, type Socket } from "node:net";

/**
 * The part of HTTP/2 (RFC 9113) that is needed to follow many streams. It costs a fraction of a complete client, so
 * that the measurement is of the server.
 */

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const TYPE = { data: 0, headers: 1, resetStream: 3, settings: 4, ping: 6, goAway: 7, windowUpdate: 8 } as const;
const FLAG = { endStream: 0x1, ack: 0x1, endHeaders: 0x4 } as const;
const FRAME_HEAD = 9;
const MAX_WINDOW = 2 ** 31 - 1;
/** Initial size of a flow-control window. */
const INITIAL_WINDOW = 65_535;
/** Number of received bytes after which a WINDOW_UPDATE returns them to the sender. */
const REPLENISH = 2 ** 29;

/** Listener for a stream. */
export interface StreamHandler {
	/** The bytes are valid during the call only. */
	data(bytes: Buffer): void;
	end(reason: string): void;
}

/** A client's connection. Its windows are so large that flow control never blocks the server. */
export class Connection {
	readonly #socket: Socket;
	readonly #streams = new Map<number, { readonly handler: StreamHandler; received: number }>();
	#nextStream = 1;
	#received = 0;
	#rest: Buffer<ArrayBufferLike> = Buffer.alloc(0);

	private constructor(socket: Socket) {
		this.#socket = socket;
		socket.on("data", (chunk: Buffer) => this.#receive(chunk));
		socket.on("error", (error) => this.#end(String(error)));
		socket.on("close", () => this.#end("the server closed the connection"));
		const settings = Buffer.alloc(12);
		// No dynamic table (HEADER_TABLE_SIZE), and the largest window for streams (INITIAL_WINDOW_SIZE).
		settings.writeUInt16BE(0x1, 0);
		settings.writeUInt16BE(0x4, 6);
		settings.writeUInt32BE(MAX_WINDOW, 8);
		socket.write(PREFACE);
		this.#send(TYPE.settings, 0, 0, settings);
		this.#widen(0, MAX_WINDOW - INITIAL_WINDOW);
	}

	static open(port: number): Promise<Connection> {
		return new Promise((resolve, reject) => {
			const socket = connect({ port, host: "127.0.0.1", noDelay: true });
			socket.once("error", reject);
			socket.once("connect", () => resolve(new Connection(socket)));
		});
	}

	/** Makes a gRPC call with one request message, prefix included. */
	call(path: string, key: string, message: Uint8Array, handler: StreamHandler): void {
		const stream = this.#nextStream;
		this.#nextStream += 2;
		this.#streams.set(stream, { handler, received: 0 });
		// Indexed fields of RFC 7541, appendix A: 3 is ":method: POST", 6 is ":scheme: http".
		const fields = [
			Buffer.from([0x83, 0x86]),
			field(":path", path),
			field(":authority", "127.0.0.1"),
			field("content-type", "application/grpc"),
			field("te", "trailers"),
			field("x-access-token", key),
		];
		this.#send(TYPE.headers, FLAG.endHeaders, stream, Buffer.concat(fields));
		this.#send(TYPE.data, FLAG.endStream, stream, message);
	}

	close(): void {
		this.#streams.clear();
		this.#socket.destroy();
	}

	#receive(chunk: Buffer): void {
		const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
		let at = 0;
		while (bytes.length - at >= FRAME_HEAD) {
			const length = bytes.readUIntBE(at, 3);
			const end = at + FRAME_HEAD + length;
			if (end > bytes.length) break;
			const [type = 0, flags = 0] = bytes.subarray(at + 3, at + 5);
			const stream = bytes.readUInt32BE(at + 5) & MAX_WINDOW;
			this.#frame(type, flags, stream, bytes.subarray(at + FRAME_HEAD, end));
			at = end;
		}
		this.#rest = bytes.subarray(at);
	}

	#frame(type: number, flags: number, id: number, payload: Buffer): void {
		const stream = this.#streams.get(id);
		switch (type) {
			case TYPE.data:
				this.#received += payload.length;
				if (this.#received >= REPLENISH) {
					this.#widen(0, this.#received);
					this.#received = 0;
				}
				if (stream === undefined) return;
				stream.received += payload.length;
				if (stream.received >= REPLENISH) {
					this.#widen(id, stream.received);
					stream.received = 0;
				}
				stream.handler.data(payload);
				break;
			case TYPE.settings:
				if ((flags & FLAG.ack) === 0) this.#send(TYPE.settings, FLAG.ack, 0, Buffer.alloc(0));
				return;
			case TYPE.ping:
				if ((flags & FLAG.ack) === 0) this.#send(TYPE.ping, FLAG.ack, 0, Buffer.from(payload));
				return;
			case TYPE.goAway:
				this.#end("the server sent GOAWAY");
				return;
			case TYPE.resetStream:
				this.#endStream(id, `the stream was reset, code ${payload.readUInt32BE(0)}`);
				return;
		}
		if ((type === TYPE.data || type === TYPE.headers) && (flags & FLAG.endStream) !== 0)
			this.#endStream(id, `the stream ended: ${payload.toString("latin1", 0, 200)}`);
	}

	#endStream(id: number, reason: string): void {
		const stream = this.#streams.get(id);
		this.#streams.delete(id);
		stream?.handler.end(reason);
	}

	#end(reason: string): void {
		for (const id of [...this.#streams.keys()]) this.#endStream(id, reason);
		this.#socket.destroy();
	}

	#widen(stream: number, bytes: number): void {
		const payload = Buffer.alloc(4);
		payload.writeUInt32BE(bytes);
		this.#send(TYPE.windowUpdate, 0, stream, payload);
	}

	#send(type: number, flags: number, stream: number, payload: Uint8Array): void {
		const head = Buffer.alloc(FRAME_HEAD);
		head.writeUIntBE(payload.length, 0, 3);
		head[3] = type;
		head[4] = flags;
		head.writeUInt32BE(stream, 5);
		this.#socket.write(Buffer.concat([head, payload]));
	}
}

/**
 * Encodes a literal field without indexing (RFC 7541, section 6.2.2). Name and value must be shorter than 127 bytes.
 */
function field(name: string, value: string): Buffer {
	if (name.length > 126 || value.length > 126) throw new RangeError("too long for a length of one byte");
	return Buffer.concat([
		Buffer.from([0, name.length]),
		Buffer.from(name, "latin1"),
		Buffer.from([value.length]),
		Buffer.from(value, "latin1"),
	]);
}
