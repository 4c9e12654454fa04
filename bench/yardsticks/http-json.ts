import { createServer } from "node:http";
import { announce } from "../processes/parent.ts";

/** The least that a webhook in JSON can do: a server that reads the body and parses it. */

const SUCCESS = JSON.stringify({ success: true });
const HEADERS = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(SUCCESS) };

const server = createServer((request, response) => {
	const chunks: Buffer[] = [];
	request.on("data", (chunk: Buffer) => chunks.push(chunk));
	request.on("end", () => {
		JSON.parse(Buffer.concat(chunks).toString());
		response.writeHead(200, HEADERS).end(SUCCESS);
	});
});
server.listen(0, "127.0.0.1", () => {
	const address = server.address();
	announce({ port: typeof address === "object" && address !== null ? address.port : 0 });
});
process.on("disconnect", () => process.exit(0));
