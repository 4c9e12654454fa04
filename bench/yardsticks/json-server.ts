import { createServer, type IncomingMessage } from "node:http";
import { announce } from "../processes/parent.ts";

const SUCCESS = JSON.stringify({ success: true });
const HEADERS = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(SUCCESS) };

/**
 * Starts the HTTP server that the yardsticks share. It reads each body and runs JSON.parse. It announces its port and
 * ends with the parent process.
 *
 * @param handle receives the parsed body, the request, and a function that responds with success
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
