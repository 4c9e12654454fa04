import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type Server, type ServerOpts, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { createServer as createTlsServer, type PeerCertificate, type SecureContextOptions, TLSSocket } from "node:tls";
import { type Address, formatAddress } from "../config/address.ts";
import type { TlsFiles } from "../config/config.ts";
import type { Log } from "../telemetry/log.ts";
import { LIMITS, type Limits } from "./limits.ts";

/** The events of a listener that go to the log. */
export type ListenerLog = Pick<
	Log,
	"cleartext" | "connectionsFull" | "connectionFailed" | "certificatesTaken" | "certificatesRefused"
>;

/** Settings of {@link Connections}. */
export interface ConnectionOptions {
	readonly listener: "http" | "grpc";
	readonly address: Address;
	/** Undefined for clear text. */
	readonly tls: TlsFiles | undefined;
	/** Protocols that TLS offers (ALPN), the best one first. */
	readonly protocols: readonly string[];
	/** Takes a connection, which TLS has let through. */
	readonly serve: (socket: Socket) => void;
	readonly log: ListenerLog;
	readonly limits?: Limits;
	/** Milliseconds between two looks at the files of TLS. */
	readonly tlsInterval?: number;
}

/** Milliseconds between two looks at the connections that are left while the listener stops. */
const SWEEP = 50;
/**
 * Sockets that listen at the address. libuv accepts one connection of each in a turn of the event loop
 * (https://github.com/libuv/libuv/pull/3696), and a turn can take 20 ms when there is much to do. With one socket, a
 * probe of the health waited for 10 seconds behind 3,000 clients that connected at once; with 64 for 2 to 6. Other
 * systems than Linux do not share connections out between sockets.
 */
const SOCKETS = process.platform === "linux" ? 64 : 1;
/**
 * Most connections that wait on such a socket to be accepted. Linux takes its `net.core.somaxconn` if that is less.
 * Those that find no room are not refused: their clients send the first bytes again, ever more seldom.
 */
const BACKLOG = 4_096;

/** When the bytes of a connection were last counted as more than before. */
interface Progress {
	bytes: number;
	at: number;
}

/** Accepts connections, in clear text or with TLS, and knows all that are open. */
export class Connections {
	readonly address: Address;
	readonly #servers: readonly Server[];
	readonly #open: ReadonlySet<Socket>;

	private constructor(servers: readonly Server[], open: ReadonlySet<Socket>, address: Address) {
		this.#servers = servers;
		this.#open = open;
		this.address = address;
	}

	/** @throws Error when the address cannot be listened on, or the files of TLS cannot be used */
	static async listen(options: ConnectionOptions): Promise<Connections> {
		const { address, tls, log, listener, limits = LIMITS } = options;
		const open = new Set<Socket>();
		const server = tls === undefined ? createServer(SOCKET) : await createSecureServer(tls, options);
		const failed = (peer: string | undefined, { code, message }: NodeJS.ErrnoException): void => {
			if (!isMistake(code)) return;
			// These messages come from fixed lists. Others may quote what was sent.
			const reason = /^HPE_|^ERR_HTTP2_ERROR$/.test(code) ? message : undefined;
			log.connectionFailed({ listener, peer, code, reason });
		};
		let full = false;
		const accept = (socket: Socket): void => {
			if (open.size < limits.connections) {
				server.emit("connection", socket);
				return;
			}
			if (!full) log.connectionsFull(listener, limits.connections);
			full = true;
			socket.destroy();
		};
		server.on("connection", (socket) => {
			open.add(socket);
			// Half of the bound, so that a client that comes and goes at the bound is no event each time.
			if (open.size * 2 < limits.connections) full = false;
			const silent = setTimeout(() => {
				if (socket.bytesRead < SHORTEST_REQUEST) socket.destroy();
			}, limits.headerTime);
			const peer = peerOf(socket);
			socket.on("error", (error) => failed(peer, error));
			socket.on("close", () => {
				clearTimeout(silent);
				open.delete(socket);
			});
		});
		server.on("secureConnection", (socket: TLSSocket) => {
			const peer = peerOf(socket);
			socket.on("error", (error) => failed(peer, error));
		});
		server.on("tlsClientError", (error: Error, socket: TLSSocket) => {
			// A code such as CERT_HAS_EXPIRED, though it is declared as an Error.
			const untrusted: unknown = socket.authorizationError;
			if (typeof untrusted === "string") log.connectionFailed({ listener, peer: peerOf(socket), code: untrusted });
			else failed(peerOf(socket), error);
		});
		server.on(tls === undefined ? "connection" : "secureConnection", options.serve);
		const sockets = await listenAt(address, accept);
		if (tls === undefined && !/^(127\.|::1$|localhost$)/.test(address.host)) log.cleartext(listener, address.host);
		return new Connections([...sockets, server], open, { host: address.host, port: portOf(sockets) });
	}

	/** Connections that are open. */
	get count(): number {
		return this.#open.size;
	}

	/** Accepts no further connection, and closes those on which nothing was ever sent. */
	refuse(): void {
		this.#close();
		for (const socket of this.#open) if (socket.bytesRead === 0) socket.destroy();
	}

	/**
	 * Resolves when no connection is left. Those that do not end by themselves are cut off.
	 *
	 * @param stall milliseconds after which a connection is cut off on which nothing moves in either direction
	 * @param until when all are cut off, as performance.now() counts
	 */
	async ended(stall: number, until: number): Promise<void> {
		const seen = new WeakMap<Socket, Progress>();
		while (this.#open.size > 0) {
			const now = performance.now();
			for (const socket of this.#open) {
				const bytes = socket.bytesRead + socket.bytesWritten;
				const last = seen.get(socket);
				if (last?.bytes !== bytes) seen.set(socket, { bytes, at: now });
				if (now > until || (last?.bytes === bytes && now - last.at > stall)) socket.destroy();
			}
			await delay(SWEEP);
		}
	}

	/** Accepts no further connection, and cuts off all that there are. */
	kill(): void {
		this.#close();
		for (const socket of this.#open) socket.destroy();
	}

	#close(): void {
		for (const server of this.#servers) server.close();
	}
}

/**
 * Listens at an address with {@link SOCKETS} sockets.
 *
 * @returns servers that give connections to `accept`
 * @throws Error when the address cannot be listened on, also when this process or another one listens there
 */
async function listenAt(address: Address, accept: (socket: Socket) => void): Promise<Server[]> {
	if (SOCKETS === 1) return [await listenOn(address, false, accept)];
	if (address.port !== 0) {
		// Sockets that share a port do not fail when others share it already. One that does not share it does.
		const alone = await listenOn(address, false, (socket) => socket.destroy());
		await once(alone.close(), "close");
	}
	const servers = [await listenOn(address, true, accept)];
	try {
		const port = portOf(servers);
		while (servers.length < SOCKETS) servers.push(await listenOn({ ...address, port }, true, accept));
		return servers;
	} catch (error) {
		for (const server of servers) server.close();
		throw error;
	}
}

/** @param reusePort whether the port is shared with other sockets of this user that share it */
async function listenOn({ host, port }: Address, reusePort: boolean, accept: (socket: Socket) => void) {
	const server = createServer(SOCKET, accept).listen({ host, port, reusePort, backlog: BACKLOG });
	await once(server, "listening");
	return server;
}

function portOf([server]: readonly Server[]): number {
	const address = server?.address();
	return typeof address === "object" && address !== null ? address.port : 0;
}

/**
 * Whether a connection ended because of what its client did: its bytes were wrong, or did not come in time. The errors of
 * the system only tell that a client has gone.
 */
function isMistake(code: string | undefined): code is string {
	return code !== undefined && /^(?:HPE|ERR)_/.test(code);
}

/** Address and port that a connection comes from. Undefined when it is closed. */
export function peerOf({ remoteAddress, remotePort }: Socket): string | undefined {
	if (remoteAddress === undefined || remotePort === undefined) return undefined;
	return formatAddress({ host: remoteAddress, port: remotePort });
}

const SOCKET: ServerOpts = {
	noDelay: true,
	// Finds peers that have vanished.
	keepAlive: true,
	keepAliveInitialDelay: 60_000,
};

/** Bytes of `GET / HTTP/1.0` with its two ends of line; the preface of HTTP/2 is longer. */
const SHORTEST_REQUEST = 18;

async function createSecureServer(files: TlsFiles, options: ConnectionOptions) {
	const { protocols, log, listener, limits = LIMITS, tlsInterval = 5_000 } = options;
	const unusable = (cause: unknown): never => {
		throw new Error("the files of TLS cannot be used", { cause });
	};
	let context = await readFiles(files).catch(unusable);
	const server = createTlsServer({
		...SOCKET,
		ALPNProtocols: [...protocols],
		handshakeTimeout: limits.headerTime,
		requestCert: files.clientCa !== undefined,
		rejectUnauthorized: files.clientCa !== undefined,
	});
	try {
		server.setSecureContext(context);
	} catch (error) {
		unusable(error);
	}
	/** Why the files could not be used when they were looked at last. */
	let reported: string | undefined;
	const follow = setInterval(async () => {
		try {
			const now = await readFiles(files);
			const isSame = JSON.stringify(now) === JSON.stringify(context);
			context = now;
			if (!isSame) {
				server.setSecureContext(now);
				log.certificatesTaken(listener);
			}
			reported = undefined;
		} catch (error) {
			const reason = String(error);
			if (reason !== reported) log.certificatesRefused(listener, error);
			reported = reason;
		}
	}, tlsInterval);
	follow.unref();
	return server.on("close", () => clearInterval(follow));
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
 * Name of the certificate with which a client has proved who it is: the common name of its subject, or else its first
 * alternative name (RFC 5280, section 4.2.1.6). Undefined without such a certificate.
 */
export function certificateName(certificate: PeerCertificate | undefined): string | undefined {
	const [commonName] = [certificate?.subject?.CN].flat();
	return commonName ?? certificate?.subjectaltname?.split(", ", 1)[0]?.replace(/^[A-Za-z ]+:/, "");
}

/** The certificate of the client at the other end of a connection, if an authority has signed it that is trusted. */
export function certificateOf(socket: Socket): PeerCertificate | undefined {
	return socket instanceof TLSSocket && socket.authorized ? socket.getPeerCertificate() : undefined;
}
