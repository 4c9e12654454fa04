import { createServer, type IncomingMessage } from "node:http";
import { announce } from "../processes/parent.ts";

const SUCCESS = JSON.stringify({ success: true });
const HEADERS = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(SUCCESS) };

/**
 * Serves what every yardstick over HTTP does: it reads each body and runs JSON.parse. Announces the port, and ends with
 * the parent process.
 *
 * @param handle is given what the body says, and a function that answers with success
 */
export function serveJson(handle: (json: unknown, request: IncomingMessage, succeed: () => void) => void): void {
	const server = createServer((request, response) => {
		const chunks: Buffer[] = [];
		request.on("data", (chunk: Buffer) => chunks.push(chunk));
		request.on("end", () => {
			const json: unknown = JSON.parse(Buffer.concat(chunks).toString());
			handle(json, request, () => response.writeHead(200, HEADERS).end(SUCCESS));
		});
	});
	server.listen(0, "127.0.0.1", () => {
		const address = server.address();
		announce({ port: typeof address === "object" && address !== null ? address.port : 0 });
	});
	process.on("disconnect", () => process.exit(0));
}
