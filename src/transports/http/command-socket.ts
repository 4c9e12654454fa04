import { once } from "node:events";
import { existsSync, lstatSync, realpathSync, unlinkSync } from "node:fs";
import { createServer } from "node:http";
import { connect } from "node:net";
import { relative } from "node:path";
import type { HttpHandler } from "./http-listener.ts";

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
	const server = createServer(handler);
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
