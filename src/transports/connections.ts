import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { constants, type Http2Stream } from "node:http2";
import { createServer, type Server, type ServerOpts, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { createServer as createTlsServer, type PeerCertificate, type SecureContextOptions, TLSSocket } from "node:tls";
import type { TlsFiles } from "../config/config.ts";
import { type Address, formatAddress } from "../config/parsers.ts";
import type { EventLog } from "../telemetry/log.ts";

/** Limits that a listener sets for its clients. Times are in milliseconds. */
export const LIMITS = {
	/** Maximum number of open connections. Further ones are closed at once. */
	connections: 10_000,
	/** Time within which a client must send its first bytes, finish the TLS handshake, or send the header of a request. */
	headerTime: 10_000,
	/** Time within which a request must arrive as a whole. */
	requestTime: 120_000,
	/** Time within which a client must take a whole response, or a whole message of a gRPC stream. */
	answerTime: 120_000,
	/** Time for which a connection or a stream may be idle. Heartbeats keep watches from being idle. */
	idleTime: 65_000,
	/** Maximum bytes of a request header on the HTTP listener. The gRPC listener has the default of Node.js, 64 KiB. */
	headerBytes: 16 * 1024,
	/** Maximum number of concurrent requests on one HTTP/2 connection of the HTTP listener, and of the gRPC listener. */
	httpStreams: 100,
	grpcStreams: 1_000,
	/** Maximum bytes of a request message of a read or a watch. Those with a record or scores have `MAX_BODY_BYTES` instead. */
	readRequestBytes: 64 * 1024,
};
export type Limits = Readonly<typeof LIMITS>;

/**
 * Ends an HTTP/2 stream whose client sends its request, or takes the response, too slowly.
 *
 * @param mayIdle whether the stream may be idle; then only the time in which the request arrives is limited
 */
export function limitStream(stream: Http2Stream, { idleTime, requestTime }: Limits, mayIdle = false): void {
	const end = (): void => stream.close(constants.NGHTTP2_CANCEL);
	if (!mayIdle) stream.setTimeout(idleTime, end);
	if (stream.endAfterHeaders) return;
	const timeout = setTimeout(end, requestTime);
	const clear = (): void => clearTimeout(timeout);
	stream.once("end", clear).once("close", clear);
}

export interface ConnectionOptions {
	readonly listener: "http" | "grpc";
	readonly address: Address;
	readonly tls: TlsFiles | undefined;
	/** Protocols that TLS offers (ALPN), the preferred one first. */
	readonly protocols: readonly string[];
	/** Serves a connection. With TLS it is called after the handshake. */
	readonly serve: (socket: Socket) => void;
	readonly log: EventLog;
	readonly limits?: Limits;
}

/** Milliseconds between two reads of the TLS files. */
const RELOAD_INTERVAL = 5_000;
/** Milliseconds between two checks of the remaining connections while the listener stops. */
const SWEEP_INTERVAL = 50;
/**
 * Maximum number of connections that wait to be accepted. Linux lowers it to `net.core.somaxconn`. Connections beyond it
 * are not refused: their clients retransmit at growing intervals.
 */
const BACKLOG = 4_096;

/**
 * Starts to accept connections, in cleartext or with TLS, and keeps track of the open ones. Throws when the address
 * cannot be listened on, or the TLS files cannot be used.
 */
export async function acceptConnections(options: ConnectionOptions) {
	const { address, tls, log, listener, limits = LIMITS } = options;
	const open = new Set<Socket>();
	const server = tls === undefined ? createServer(SOCKET_OPTIONS) : await createSecureServer(tls, options);
	const logFailure = (peer: string | undefined, { code, message }: NodeJS.ErrnoException): void => {
		if (!isClientFault(code)) return;
		// The last frame of each grpc-go client names a stream in a way that Node.js does not accept.
		if (listener === "grpc" && message === "Protocol error") return;
		// These messages come from fixed lists. Other messages may quote the client's bytes.
		const reason = /^HPE_|^ERR_HTTP2_ERROR$/.test(code) ? message : undefined;
		log.emit("connection_failed", { listener, code, reason, peer });
	};
	server.maxConnections = limits.connections;
	server.on("drop", () => log.emit("connections_full", { listener, connections: limits.connections }));
	server.on("connection", (socket) => {
		open.add(socket);
		const silenceTimeout = setTimeout(() => {
			if (socket.bytesRead < SHORTEST_REQUEST) socket.destroy();
		}, limits.headerTime);
		const peer = peerOf(socket);
		socket.on("error", (error) => logFailure(peer, error));
		socket.on("close", () => {
			clearTimeout(silenceTimeout);
			open.delete(socket);
		});
	});
	server.on("secureConnection", (socket: TLSSocket) => {
		const peer = peerOf(socket);
		socket.on("error", (error) => logFailure(peer, error));
	});
	server.on("tlsClientError", (error: Error, socket: TLSSocket) => {
		// At run time a code such as CERT_HAS_EXPIRED, although the type says Error.
		const rejection: unknown = socket.authorizationError;
		if (typeof rejection === "string")
			log.emit("connection_failed", { listener, code: rejection, peer: peerOf(socket) });
		else logFailure(peerOf(socket), error);
	});
	server.on(tls === undefined ? "connection" : "secureConnection", options.serve);
	await once(server.listen({ ...address, backlog: BACKLOG }), "listening");
	if (tls === undefined && !/^(127\.|::1$|localhost$)/.test(address.host))
		log.emit("cleartext", { listener, host: address.host });
	return {
		address: { host: address.host, port: portOf(server) },
		count: () => open.size,

		/** Stops accepting connections, and closes those on which the client has sent nothing yet. */
		stopAccepting(): void {
			server.close();
			for (const socket of open) if (socket.bytesRead === 0) socket.destroy();
		},

		/**
		 * Waits until no connection is left, and cuts off those that do not end by themselves.
		 *
		 * @param stall milliseconds after which a connection is cut off on which no bytes move in either direction
		 * @param until time at which all connections are cut off, in milliseconds of `performance.now()`
		 * @param closeIdle closes connections that are idle now
		 */
		async waitForEnd(stall: number, until: number, closeIdle?: () => void): Promise<void> {
			/** The bytes of each connection in both directions, and when that number was first seen. */
			const seen = new WeakMap<Socket, { readonly bytes: number; readonly at: number }>();
			while (open.size > 0) {
				closeIdle?.();
				const now = performance.now();
				for (const socket of open) {
					const bytes = socket.bytesRead + socket.bytesWritten;
					const last = seen.get(socket);
					if (last?.bytes !== bytes) seen.set(socket, { bytes, at: now });
					if (now > until || (last?.bytes === bytes && now - last.at > stall)) socket.destroy();
				}
				await delay(SWEEP_INTERVAL);
			}
		},

		kill(): void {
			server.close();
			for (const socket of open) socket.destroy();
		},
	};
}

function portOf(server: Server): number {
	const address = server.address();
	return typeof address === "object" && address !== null ? address.port : 0;
}

/**
 * Whether the code of an error says that a connection failed because of its client: the bytes were wrong, or did not
 * arrive in time. Errors of the operating system, in contrast, only say that a client has gone, and so does a GOAWAY with
 * an error code (`ERR_HTTP2_SESSION_ERROR`).
 */
function isClientFault(code: string | undefined): code is string {
	return code !== undefined && /^(?:HPE|ERR)_(?!HTTP2_SESSION_ERROR$)/.test(code);
}

/** Returns the address and port of the client of a connection. Undefined when the connection is closed. */
export function peerOf({ remoteAddress, remotePort }: Socket): string | undefined {
	if (remoteAddress === undefined || remotePort === undefined) return undefined;
	return formatAddress({ host: remoteAddress, port: remotePort });
}

const SOCKET_OPTIONS: ServerOpts = {
	noDelay: true,
	// Detects peers that have vanished.
	keepAlive: true,
	keepAliveInitialDelay: 60_000,
};

/** Length in bytes of `GET / HTTP/1.0` with its two line ends. The preface of HTTP/2 is longer. */
const SHORTEST_REQUEST = 18;

async function createSecureServer(files: TlsFiles, options: ConnectionOptions) {
	const { protocols, log, listener, limits = LIMITS } = options;
	const server = createTlsServer({
		...SOCKET_OPTIONS,
		ALPNProtocols: [...protocols],
		handshakeTimeout: limits.headerTime,
		requestCert: files.clientCa !== undefined,
		rejectUnauthorized: files.clientCa !== undefined,
	});
	let context: SecureContextOptions;
	try {
		context = await readFiles(files);
		server.setSecureContext(context);
	} catch (cause) {
		throw new Error("the TLS files cannot be used", { cause });
	}
	/** Why the files could not be used at the last read. Undefined if they could. The log has this reason already. */
	let reported: string | undefined;
	const reload = setInterval(async () => {
		try {
			const current = await readFiles(files);
			const isSame = JSON.stringify(current) === JSON.stringify(context);
			context = current;
			if (!isSame) {
				server.setSecureContext(current);
				log.emit("certificates_taken", { listener });
			}
			reported = undefined;
		} catch (error) {
			const reason = String(error);
			if (reason !== reported) log.emit("certificates_refused", { listener }, error);
			reported = reason;
		}
	}, RELOAD_INTERVAL);
	reload.unref();
	return server.on("close", () => clearInterval(reload));
}

async function readFiles({ cert, key, clientCa }: TlsFiles): Promise<SecureContextOptions> {
	const read = (path: string) => readFile(path, "utf8");
	return {
		cert: await read(cert),
		key: await read(key),
		...(clientCa !== undefined && { ca: await read(clientCa) }),
	};
}

/**
 * Returns the name of a client's certificate: the common name of its subject, or else its first subject alternative
 * name (RFC 5280, section 4.2.1.6). Undefined without a certificate.
 */
export function certificateName(certificate: PeerCertificate | undefined): string | undefined {
	const [commonName] = [certificate?.subject?.CN].flat();
	return commonName ?? certificate?.subjectaltname?.split(", ", 1)[0]?.replace(/^[A-Za-z ]+:/, "");
}

/** Returns the name of the certificate of the client of a connection, if a trusted authority has signed it. */
export function certificateNameOf(socket: Socket): string | undefined {
	return socket instanceof TLSSocket && socket.authorized ? certificateName(socket.getPeerCertificate()) : undefined;
}

export interface RunningListener {
	/** Address that it listens on. Contains the port that the system chose if port 0 was requested. */
	readonly address: Address;
	connections(): number;
	/**
	 * Stops accepting connections. Resolves when the requests under way have their responses and no connection is left.
	 *
	 * @param stall milliseconds after which an idle connection is cut off
	 * @param until time at which all connections are cut off, in milliseconds of `performance.now()`
	 */
	stop(stall: number, until: number): Promise<void>;
	kill(): void;
}
