import type { Socket } from "node:net";
import { openSocket } from "./raw-socket.ts";

const HEAD_END = Buffer.from("\r\n\r\n");

/** A persistent HTTP/1.1 connection with one request under way at a time. */
class HttpLane {
	readonly #socket: Socket;
	#settle: ((answer: string) => void) | undefined;
	#received: Buffer = Buffer.alloc(0);

	constructor(address: string) {
		this.#socket = openSocket(address);
		this.#socket.on("data", (chunk: Buffer) => this.#receive(chunk));
		this.#socket.on("close", () => this.#finish("closed"));
	}

	get open(): boolean {
		return !this.#socket.destroyed;
	}

	/** Sends a request and returns the response's status, or "closed". */
	send(request: Uint8Array): Promise<string> {
		if (!this.open) return Promise.resolve("closed");
		return new Promise((resolve) => {
			this.#settle = resolve;
			this.#socket.write(request);
		});
	}

	close(): void {
		this.#socket.destroy();
	}

	#receive(chunk: Buffer): void {
		this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
		const headEnd = this.#received.indexOf(HEAD_END);
		if (headEnd < 0) return;
		const head = this.#received.toString("latin1", 0, headEnd);
		const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
		if (this.#received.length < headEnd + HEAD_END.length + length) return;
		this.#received = Buffer.alloc(0);
		// The server is about to close the connection.
		if (/\r\nconnection: *close/i.test(head)) this.#socket.destroy();
		this.#finish(head.slice("HTTP/1.1 ".length, "HTTP/1.1 200".length));
	}

	#finish(answer: string): void {
		this.#settle?.(answer);
		this.#settle = undefined;
	}
}

/** Sends requests over several lanes, each with one request under way at a time. */
export interface Lanes {
	/** Number of requests without a response. */
	readonly waiting: number;
	/**
	 * Sends a request. It resolves with the response's status or the name of its code, with "closed" when the server
	 * closes the connection, or with "left" when {@link close} is called first. Returns undefined when all lanes are
	 * busy.
	 */
	send(request: Uint8Array): Promise<string> | undefined;
	/** Closes all connections. */
	close(): void;
}

/**
 * HTTP/1.1 connections, as many as the requests under way need. They cost a fraction of a complete client, so that a
 * load overloads the server and not the client.
 */
export class HttpLanes implements Lanes {
	readonly #address: string;
	readonly #most: number;
	readonly #idle: HttpLane[] = [];
	readonly #open = new Set<HttpLane>();

	/**
	 * @param address `host:port`
	 * @param most maximum number of connections
	 */
	constructor(address: string, most: number) {
		this.#address = address;
		this.#most = most;
	}

	get waiting(): number {
		return this.#open.size - this.#idle.length;
	}

	send(request: Uint8Array): Promise<string> | undefined {
		const lane = this.#lane();
		if (lane === undefined) return undefined;
		return this.#use(lane, request);
	}

	async #use(lane: HttpLane, request: Uint8Array): Promise<string> {
		const answer = await lane.send(request);
		if (!this.#open.has(lane)) return "left";
		if (lane.open) this.#idle.push(lane);
		else this.#open.delete(lane);
		return answer;
	}

	/** Returns the least recently used connection, so that each looks like another client's. */
	#lane(): HttpLane | undefined {
		for (let lane = this.#idle.shift(); lane !== undefined; lane = this.#idle.shift()) {
			if (lane.open) return lane;
			this.#open.delete(lane);
		}
		if (this.#open.size >= this.#most) return undefined;
		const lane = new HttpLane(this.#address);
		this.#open.add(lane);
		return lane;
	}

	close(): void {
		const lanes = [...this.#open];
		this.#open.clear();
		this.#idle.length = 0;
		for (const lane of lanes) lane.close();
	}
}
