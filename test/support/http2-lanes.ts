import { type ClientHttp2Session, connect, type OutgoingHttpHeaders } from "node:http2";
import type { Lanes } from "./http-lanes.ts";

/** Default number of connections: a server limits the streams of each one. */
const DEFAULT_SESSIONS = 4;

/** Fields of a response's header and trailers, by name. */
export type AnswerFields = ReadonlyMap<string, unknown>;

/** A few HTTP/2 connections that are used in turn. One that the server has closed is opened again. */
export class Sessions {
	readonly #address: string;
	readonly #sessions: (ClientHttp2Session | undefined)[] = [];
	readonly #count: number;
	#calls = 0;

	/**
	 * @param address `host:port`
	 * @param count number of connections
	 */
	constructor(address: string, count = DEFAULT_SESSIONS) {
		this.#address = address;
		this.#count = count;
	}

	/** Returns the connection for the next call. */
	next(): ClientHttp2Session {
		this.#calls += 1;
		return this.at(this.#calls % this.#count);
	}

	/** Returns the connection with a number, counted from 0. */
	at(index: number): ClientHttp2Session {
		const present = this.#sessions[index];
		if (present !== undefined && !present.closed && !present.destroyed) return present;
		const session = connect(`http://${this.#address}`).on("error", () => undefined);
		this.#sessions[index] = session;
		return session;
	}

	/** Closes all connections. */
	close(): void {
		for (const session of this.#sessions) session?.destroy();
	}
}

/** Settings of {@link Http2Lanes}. */
export interface Http2LaneOptions {
	/** Headers of each request. */
	readonly headers: OutgoingHttpHeaders;
	/** Returns the response's status or code. Undefined when the fields have none. */
	readonly answerOf: (fields: AnswerFields) => string | undefined;
	/** Number of connections. */
	readonly connections: number;
	/** Maximum number of concurrent requests on each connection. */
	readonly each: number;
}

/** Concurrent requests over several HTTP/2 connections. The least recently used lane is next. */
export class Http2Lanes implements Lanes {
	readonly #sessions: Sessions;
	readonly #options: Http2LaneOptions;
	/** Numbers of the connections with free lanes, once for each lane. */
	readonly #free: number[] = [];
	#closed = false;
	#waiting = 0;

	/** @param address `host:port` */
	constructor(address: string, options: Http2LaneOptions) {
		const { connections, each } = options;
		this.#sessions = new Sessions(address, connections);
		this.#options = options;
		for (let place = 0; place < connections * each; place++) this.#free.push(place % connections);
	}

	get waiting(): number {
		return this.#waiting;
	}

	send(body: Uint8Array): Promise<string> | undefined {
		const index = this.#free.shift();
		return index === undefined ? undefined : this.#request(index, body);
	}

	async #request(index: number, body: Uint8Array): Promise<string> {
		this.#waiting += 1;
		const fields = await responseTo(this.#sessions.at(index), this.#options.headers, body);
		this.#waiting -= 1;
		this.#free.push(index);
		return this.#options.answerOf(fields) ?? (this.#closed ? "left" : "closed");
	}

	close(): void {
		this.#closed = true;
		this.#sessions.close();
	}
}

/** Makes a request and returns the fields of its response. They are empty when the stream ends without a response. */
export async function responseTo(
	session: ClientHttp2Session,
	headers: OutgoingHttpHeaders,
	body: Uint8Array,
): Promise<AnswerFields> {
	const stream = session.request(headers);
	const answered = new Map<string, unknown>();
	const keep = (given: Readonly<Record<string, unknown>>): void => {
		for (const [name, value] of Object.entries(given)) answered.set(name, value);
	};
	// A stream that is reset closes with an error.
	stream
		.on("response", keep)
		.on("trailers", keep)
		.on("error", () => undefined);
	const closed = new Promise((resolve) => stream.once("close", resolve));
	stream.resume().end(body);
	await closed;
	return answered;
}
