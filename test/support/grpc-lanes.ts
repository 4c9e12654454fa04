import { type ClientHttp2Session, connect } from "node:http2";
import type { DescMethod } from "@bufbuild/protobuf";
import type { Lanes } from "./http-lanes.ts";
import { callOver, codeName } from "./raw-rpc.ts";

/** Connections over which calls are made, as a server lets a client have only so many on each. */
const SESSIONS = 4;

/** A few connections of HTTP/2 in turn, which are opened again when the server has closed them. */
export class Sessions {
	readonly #address: string;
	readonly #sessions: (ClientHttp2Session | undefined)[] = [];
	#given = 0;

	/** @param address `host:port` */
	constructor(address: string) {
		this.#address = address;
	}

	/** The connection for the next call. */
	next(): ClientHttp2Session {
		const index = this.#given % SESSIONS;
		this.#given += 1;
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

/** gRPC calls of one method over a few connections. */
export class GrpcLanes implements Lanes {
	readonly #sessions: Sessions;
	readonly #method: DescMethod;
	readonly #fields: Readonly<Record<string, string>>;
	readonly #most: number;
	#closed = false;
	#waiting = 0;

	/**
	 * @param address `host:port`
	 * @param fields header fields beside the usual ones
	 * @param most most calls at a time
	 */
	constructor(address: string, method: DescMethod, fields: Readonly<Record<string, string>>, most: number) {
		this.#sessions = new Sessions(address);
		this.#method = method;
		this.#fields = fields;
		this.#most = most;
	}

	get waiting(): number {
		return this.#waiting;
	}

	send(body: Uint8Array): Promise<string> | undefined {
		if (this.#waiting >= this.#most) return undefined;
		return this.#call(body);
	}

	async #call(body: Uint8Array): Promise<string> {
		this.#waiting += 1;
		const answer = await callOver(this.#sessions.next(), this.#method, body, this.#fields);
		this.#waiting -= 1;
		if (answer === undefined) return this.#closed ? "left" : "closed";
		return codeName(answer.code);
	}

	close(): void {
		this.#closed = true;
		this.#sessions.close();
	}
}
