import { connect, type Socket } from "node:net";
import type { Lane } from "./run.ts";

const HEAD_END = Buffer.from("\r\n\r\n");

/** Persistent HTTP/1.1 connections, each with at most one request under way. */
export class HttpLanes {
	readonly lanes: readonly Lane[];
	readonly #sockets: readonly Socket[];

	private constructor(sockets: readonly Socket[]) {
		this.#sockets = sockets;
		this.lanes = sockets.map(laneOf);
	}

	static async open(port: number, count: number): Promise<HttpLanes> {
		return new HttpLanes(await Promise.all(Array.from({ length: count }, () => open(port))));
	}

	[Symbol.dispose](): void {
		for (const socket of this.#sockets) socket.destroy();
	}
}

function open(port: number): Promise<Socket> {
	return new Promise((resolve, reject) => {
		const socket = connect({ port, host: "127.0.0.1", noDelay: true });
		socket.once("connect", () => resolve(socket));
		socket.once("error", reject);
	});
}

function laneOf(socket: Socket): Lane {
	let settle: ((wrong: string | undefined) => void) | undefined;
	let received: Buffer | undefined;
	const finish = (wrong: string | undefined): void => {
		received = undefined;
		settle?.(wrong);
		settle = undefined;
	};
	socket.on("data", (chunk: Buffer) => {
		const answer = received === undefined ? chunk : Buffer.concat([received, chunk]);
		received = answer;
		const headEnd = answer.indexOf(HEAD_END);
		if (headEnd < 0) return;
		const head = answer.toString("latin1", 0, headEnd);
		const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
		if (length === undefined) return finish(`an answer without Content-Length: ${head}`);
		if (answer.length < headEnd + HEAD_END.length + Number(length)) return;
		finish(head.startsWith("HTTP/1.1 200 ") ? undefined : answer.toString("utf8", 0, 1000));
	});
	socket.on("error", (error) => finish(String(error)));
	socket.on("close", () => finish("the server closed the connection"));
	return (request) =>
		new Promise((resolve) => {
			settle = resolve;
			socket.write(request);
		});
}
