import { connect, type Socket } from "node:net";
import { serve } from "../processes/parent.ts";
import { loadPlan } from "./plan.ts";
import { type Lane, run } from "./run.ts";

/** HTTP/1.1 load client: connections that are kept alive, each with one request under way. */

const HEAD_END = Buffer.from("\r\n\r\n");

serve(loadPlan, async (plan) => {
	const sockets = await Promise.all(Array.from({ length: plan.concurrency }, () => open(plan.port)));
	try {
		return await run(plan, sockets.map(laneOf));
	} finally {
		for (const socket of sockets) socket.destroy();
	}
});

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
