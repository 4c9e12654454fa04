import {
	createServer as createHttp1Server,
	type IncomingMessage,
	type OutgoingHttpHeaders,
	type ServerResponse,
} from "node:http";
import {
	createServer as createHttp2Server,
	type Http2ServerRequest,
	type Http2ServerResponse,
	type ServerHttp2Session,
} from "node:http2";
import type { Socket } from "node:net";
import type { ObservedRequest } from "../../telemetry/requests.ts";
import { type ConnectionOptions, Connections, peerOf } from "../connections.ts";
import { LIMITS, limitStream } from "../limits.ts";
import type { RunningListener } from "../running-listener.ts";
import { isEnding } from "./enter.ts";

/** What the parts of an answer need of a response. */
export interface HttpResponse {
	readonly headersSent: boolean;
	setHeader(name: string, value: string): unknown;
	writeHead(status: number, headers?: OutgoingHttpHeaders): unknown;
	end(text: string): unknown;
	destroy(): unknown;
}

/** Answers a request of HTTP/1.1 or HTTP/2. */
export type HttpAnswer = (
	request: IncomingMessage | Http2ServerRequest,
	response: ServerResponse | Http2ServerResponse,
) => void;

/** Answers a request and tells what becomes of it. Its end is told by who listens. */
export type ObservedAnswer = (...call: [...Parameters<HttpAnswer>, observed: ObservedRequest]) => void;

/** How often connections that have become idle are closed while the listener stops, in milliseconds. */
const IDLE_SWEEP = 50;

/**
 * Listens for HTTP/1.1 and HTTP/2. TLS lets the client choose by ALPN; in clear text the first bytes tell (RFC 9113,
 * section 3.3).
 *
 * @throws Error when the address cannot be listened on
 */
export async function listenHttp(
	options: Omit<ConnectionOptions, "listener" | "protocols" | "serve">,
	answer: HttpAnswer,
): Promise<RunningListener> {
	const { limits = LIMITS } = options;
	let draining = false;
	const refuse = ({ socket }: IncomingMessage, response: ServerResponse, status: number, code: string): void => {
		options.log.connectionFailed({ listener: "http", peer: peerOf(socket), code });
		response.writeHead(status, { Connection: "close" }).end();
	};
	const http1 = createHttp1Server(
		{
			keepAliveTimeout: limits.idleTime,
			headersTimeout: limits.headerTime,
			requestTimeout: limits.requestTime,
			connectionsCheckingInterval: limits.headerTime / 5,
			maxHeaderSize: limits.headerBytes,
			requireHostHeader: false,
		},
		(request, response) => {
			if (isEnding(request.socket)) return;
			// While the listener stops, each answer is the last one of its connection.
			if (draining) response.setHeader("Connection", "close");
			request.url = originForm(request.url ?? "");
			// RFC 9112, section 3.2. Node.js would answer the same and tell nobody.
			if (request.httpVersion === "1.1" && request.headers.host === undefined)
				refuse(request, response, 400, "MISSING_HOST");
			else answer(request, response);
		},
	);
	http1.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) =>
		refuse(request, response, 417, "UNKNOWN_EXPECTATION"),
	);
	http1.setTimeout(limits.idleTime);
	// The server gets its connections by hand. With this event it begins to watch the time of their requests.
	http1.emit("listening");

	const sessions = new Set<ServerHttp2Session>();
	const settings = { maxConcurrentStreams: limits.httpStreams, maxHeaderListSize: limits.headerBytes };
	const http2 = createHttp2Server({ settings }, (request, response) => {
		limitStream(request.stream, limits);
		answer(request, response);
	});
	http2.setTimeout(limits.idleTime);
	http2.on("session", (session) => {
		sessions.add(session);
		session.on("close", () => sessions.delete(session));
	});

	const connections = await Connections.listen({
		...options,
		listener: "http",
		protocols: ["h2", "http/1.1"],
		serve: (socket) => {
			const serveBy = (isHttp2: boolean): void => {
				// A client of HTTP/1.1 may end its side before it has read the answer.
				socket.allowHalfOpen = !isHttp2;
				(isHttp2 ? http2 : http1).emit("connection", socket);
			};
			if (options.tls === undefined) lookAhead(socket, serveBy);
			else serveBy("alpnProtocol" in socket && socket.alpnProtocol === "h2");
		},
	});
	return {
		address: connections.address,
		connections: () => connections.count,
		drain: () => {
			draining = true;
		},
		stop: async (stall, until) => {
			draining = true;
			connections.refuse();
			for (const session of sessions) session.close();
			http1.closeIdleConnections();
			// A stream that began before leaves its connection open and idle when it ends.
			const sweep = setInterval(() => http1.closeIdleConnections(), IDLE_SWEEP);
			await connections.ended(stall, until);
			clearInterval(sweep);
			http1.close();
		},
		kill: () => connections.kill(),
	};
}

/** A request's target without scheme and authority, which a client may send as to a proxy (RFC 9112, section 3.2.2). */
function originForm(target: string): string {
	const [authority] = /^https?:\/\/[^/?#]*/i.exec(target) ?? [];
	if (authority === undefined) return target;
	const rest = target.slice(authority.length);
	return rest.startsWith("/") ? rest : `/${rest}`;
}

/**
 * Tells whether a connection begins as one of HTTP/2, and leaves it unread. One that ends before that is closed.
 *
 * Bytes go back once only: after the end, each time would make the connection readable again, without a turn of the event
 * loop in between.
 */
function lookAhead(socket: Socket, then: (isHttp2: boolean) => void): void {
	let begin = Buffer.alloc(0);
	const look = (): void => {
		const bytes: Buffer | null = socket.read();
		if (bytes === null) return;
		begin = Buffer.concat([begin, bytes]);
		// No method of HTTP/1.1 but the one that is kept for this begins so.
		const start = begin.toString("latin1", 0, 3);
		if (start.length < 3 && "PRI".startsWith(start)) return;
		socket.removeListener("readable", look);
		socket.unshift(begin);
		then(start === "PRI");
	};
	socket.on("readable", look);
}
