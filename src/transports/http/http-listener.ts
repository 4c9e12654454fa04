import { once } from "node:events";
import { existsSync, lstatSync, realpathSync, unlinkSync } from "node:fs";
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
import { connect, type Socket } from "node:net";
import { relative } from "node:path";
import type { ObservedRequest } from "../../telemetry/requests.ts";
import {
	acceptConnections,
	type ConnectionOptions,
	LIMITS,
	limitStream,
	type RunningListener,
} from "../connections.ts";

/** The part of an HTTP/1.1 or HTTP/2 response that sending it needs. */
export interface HttpResponse {
	setHeader(name: string, value: string): unknown;
	writeHead(status: number, headers?: OutgoingHttpHeaders): unknown;
	end(body: string | Buffer): unknown;
}

export interface StreamedResponse extends HttpResponse {
	/** @param onTaken called when the part has left the process, or cannot */
	write(chunk: string | Uint8Array, onTaken?: () => void): unknown;
}

export type Request = IncomingMessage | Http2ServerRequest;
export type Response = ServerResponse | Http2ServerResponse;
export type HttpHandler = (request: Request, response: Response) => void;

/** Handles a request and reports what becomes of it to `observed`. The caller reports the end of the request. */
export type ObservedHandler = (...call: [...Parameters<HttpHandler>, observed: ObservedRequest]) => void;

interface HttpListener extends RunningListener {
	/** Asks HTTP/1.1 clients, with each response, to use another connection. Further connections are still accepted. */
	drain(): void;
}

/**
 * Listens for HTTP/1.1 and HTTP/2. With TLS the client chooses by ALPN. In cleartext the first bytes decide (RFC 9113,
 * section 3.3).
 */
export async function listenHttp(
	options: Omit<ConnectionOptions, "listener" | "protocols" | "serve">,
	handler: HttpHandler,
): Promise<HttpListener> {
	const { limits = LIMITS } = options;
	let draining = false;
	const serveHttp1 = (request: IncomingMessage, response: ServerResponse): void => {
		// While the listener drains, each response is the last one of its connection.
		if (draining) response.setHeader("Connection", "close");
		request.url = originForm(request.url ?? "");
		// RFC 9112, section 3.2. Node.js refuses only a missing field.
		if (countHosts(request) > 1) response.writeHead(400, { Connection: "close" }).end();
		else handler(request, response);
	};
	const http1 = createHttp1Server(
		{
			keepAliveTimeout: limits.idleTime,
			headersTimeout: limits.headerTime,
			requestTimeout: limits.requestTime,
			connectionsCheckingInterval: limits.headerTime / 5,
			maxHeaderSize: limits.headerBytes,
		},
		serveHttp1,
	);
	http1.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
		// A client that is refused need not send the body, so nothing can follow on the connection. `enter` changes it back.
		response.setHeader("Connection", "close");
		serveHttp1(request, response);
	});
	http1.setTimeout(limits.idleTime);
	// The server does not listen itself, because connections are handed to it. This event starts its request timeouts.
	http1.emit("listening");

	const sessions = new Set<ServerHttp2Session>();
	const settings = { maxConcurrentStreams: limits.httpStreams, maxHeaderListSize: limits.headerBytes };
	const serveHttp2 = (request: Http2ServerRequest, response: Http2ServerResponse): void => {
		limitStream(request.stream, limits);
		handler(request, response);
	};
	const http2 = createHttp2Server({ settings }, serveHttp2).on("checkContinue", serveHttp2);
	http2.setTimeout(limits.idleTime);
	http2.on("session", (session) => {
		sessions.add(session);
		session.on("close", () => sessions.delete(session));
	});

	const { address, count, stopAccepting, waitForEnd, kill } = await acceptConnections({
		...options,
		listener: "http",
		protocols: ["h2", "http/1.1"],
		serve: (socket) => {
			const serveBy = (isHttp2: boolean): void => {
				// An HTTP/1.1 client may end its side of the connection while the response is being sent.
				socket.allowHalfOpen = !isHttp2;
				(isHttp2 ? http2 : http1).emit("connection", socket);
			};
			if (options.tls === undefined) detectHttp2(socket, serveBy);
			else serveBy("alpnProtocol" in socket && socket.alpnProtocol === "h2");
		},
	});
	return {
		address,
		connections: count,
		drain: () => {
			draining = true;
		},
		stop: async (stall, until) => {
			draining = true;
			stopAccepting();
			for (const session of sessions) session.close();
			// A response that began before leaves its connection open and idle when it ends.
			await waitForEnd(stall, until, () => http1.closeIdleConnections());
			http1.close();
		},
		kill,
	};
}

/** Returns the number of Host fields of a request. The parsed headers contain only the first one. */
function countHosts({ rawHeaders }: IncomingMessage): number {
	return rawHeaders.filter((name, index) => index % 2 === 0 && name.length === 4 && /^host$/i.test(name)).length;
}

/** Returns a request target without the scheme and authority that clients send to proxies (RFC 9112, section 3.2.2). */
function originForm(target: string): string {
	if (target.startsWith("/")) return target;
	const [authority] = /^https?:\/\/[^/?#]*/i.exec(target) ?? [];
	if (authority === undefined) return target;
	const rest = target.slice(authority.length);
	return rest.startsWith("/") ? rest : `/${rest}`;
}

/**
 * Finds out from its first bytes whether a connection is one of HTTP/2, and puts these bytes back. A connection that
 * ends before is closed.
 *
 * The bytes are put back only once, when the answer is known. On a connection that has ended, each time would make it
 * readable again, without a turn of the event loop in between.
 */
function detectHttp2(socket: Socket, onDetected: (isHttp2: boolean) => void): void {
	let received = Buffer.alloc(0);
	const onReadable = (): void => {
		const bytes: Buffer | null = socket.read();
		if (bytes === null) return;
		received = Buffer.concat([received, bytes]);
		// No other HTTP method begins with PRI, which is reserved for the preface of HTTP/2 (RFC 9113, section 3.4).
		const start = received.toString("latin1", 0, 3);
		if (start.length < 3 && "PRI".startsWith(start)) return;
		socket.removeListener("readable", onReadable);
		socket.unshift(received);
		onDetected(start === "PRI");
	};
	socket.on("readable", onReadable);
}

/** Milliseconds for which a closing socket lets requests end. */
const CLOSE_TIME = 2_000;

/** Returns the path of the Unix socket by which commands reach the service that has a SQLite database open. */
export function commandSocketOf(databasePath: string): string {
	const path = `${realpathSync(databasePath)}.sock`;
	const fromHere = relative(process.cwd(), path);
	// The system accepts only about 100 characters.
	return fromHere.length < path.length ? fromHere : path;
}

/**
 * Listens for HTTP/1.1 on a Unix socket that only the owner of the process can use. A socket that an earlier process left
 * there is replaced: the caller has the lock of the database. The socket file is removed when the listener is disposed of.
 *
 * @throws Error when there is another file at the path, or the socket cannot be created there
 */
export async function listenForCommands(path: string, handler: HttpHandler): Promise<AsyncDisposable> {
	if (existsSync(path) && lstatSync(path).isSocket()) unlinkSync(path);
	const server = createHttp1Server(handler);
	// The mode must be set at once. `listen` creates the file before it returns.
	const mask = process.umask(0o177);
	try {
		server.listen({ path });
	} finally {
		process.umask(mask);
	}
	await once(server, "listening");
	return {
		[Symbol.asyncDispose]: async () => {
			const closed = once(server, "close");
			server.close();
			const cut = setTimeout(() => server.closeAllConnections(), CLOSE_TIME);
			await closed;
			clearTimeout(cut);
		},
	};
}

/**
 * Returns whether a service listens on a socket.
 *
 * @throws Error when the socket cannot be used, for example because it belongs to another user
 */
export async function isListening(path: string): Promise<boolean> {
	const socket = connect({ path });
	try {
		await once(socket, "connect");
		return true;
	} catch (error) {
		const code = error instanceof Error && "code" in error ? error.code : undefined;
		if (code === "ENOENT" || code === "ECONNREFUSED") return false;
		throw error;
	} finally {
		socket.destroy();
	}
}
