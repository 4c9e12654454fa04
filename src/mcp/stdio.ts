import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { ServiceError } from "../errors.ts";
import { newMcpServer, withoutNulls } from "./mcp-server.ts";
import type { Ask } from "./tools.ts";

/** Milliseconds after which a read that is not answered fails. */
const TIMEOUT = 60_000;

/**
 * Serves a client of the Model Context Protocol over standard input and output, until it closes the input. What it reads
 * comes from the HTTP API of a running service.
 *
 * @param url URL of the service, with its base path
 * @param key access key with the scope `read`
 */
export async function serveMcpOverStdio(url: URL, key: string): Promise<void> {
	const base = url.href.replace(/\/$/, "");
	const ask: Ask = async (path, query) => {
		const response = await fetch(`${base}${path}?${query}`, {
			headers: { "X-Access-Token": key },
			signal: AbortSignal.timeout(TIMEOUT),
		}).catch((cause: unknown) => {
			throw new ServiceError("unavailable", `The service at ${url.host} cannot be reached`, { cause });
		});
		const text = await response.text();
		if (!response.ok) throw new ServiceError("invalid_argument", `HTTP ${response.status}: ${detailOf(text)}`);
		return text;
	};
	const onFailed = (error: unknown): void => {
		// The client learns what the service refuses.
		if (error instanceof ServiceError) return;
		process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
	};
	const { promise: closed, resolve: close } = Promise.withResolvers<void>();
	const input = Readable.from(messages(process.stdin)).once("close", close).once("end", close);
	const handle = serveStdio(() => newMcpServer({ ask, onFailed }), {
		transport: new StdioServerTransport(input),
		onerror: onFailed,
		maxSubscriptions: 0,
	});
	await closed;
	await handle.close();
}

/** Reads the messages of a client, each of which is a line. */
async function* messages(input: Readable): AsyncGenerator<Buffer> {
	for await (const line of createInterface({ input })) yield Buffer.from(`${withoutNulls(line)}\n`);
}

/** Returns the sentence of an error of the HTTP API. */
function detailOf(text: string): string {
	try {
		const json: unknown = JSON.parse(text);
		if (typeof json === "object" && json !== null && "detail" in json && typeof json.detail === "string")
			return json.detail;
	} catch {}
	return "the response is not one of the service";
}
