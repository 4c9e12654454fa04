import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, vi } from "vitest";

/** A request that a receiver got. */
export interface Received {
	readonly headers: Readonly<Record<string, string>>;
	readonly body: string;
}

/** Answers a request whose body has arrived. */
export type Answering = (received: Received, response: ServerResponse, request: IncomingMessage) => void;

/** A receiver of deliveries on a port of its own. */
export class Receiver implements AsyncDisposable {
	/** All requests, in the order in which their bodies ended. */
	readonly received: Received[] = [];
	readonly url: string;
	/** How requests are answered: with 200 at first. */
	answer: Answering = (_, response) => void response.writeHead(200).end("ok");
	/** Number of requests that have not been answered yet, and the largest such number. */
	underWay = 0;
	mostUnderWay = 0;
	readonly #close: () => Promise<void>;

	private constructor(url: string, close: () => Promise<void>) {
		this.url = url;
		this.#close = close;
	}

	static async start(): Promise<Receiver> {
		const server = createServer((request, response) => {
			receiver.underWay += 1;
			receiver.mostUnderWay = Math.max(receiver.mostUnderWay, receiver.underWay);
			response.on("close", () => {
				receiver.underWay -= 1;
			});
			const chunks: Buffer[] = [];
			request.on("data", (chunk: Buffer) => chunks.push(chunk));
			request.on("end", () => {
				const headers = Object.fromEntries(
					Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
				);
				const received = { headers, body: Buffer.concat(chunks).toString() };
				receiver.received.push(received);
				receiver.answer(received, response, request);
			});
		});
		server.listen(0, "127.0.0.1");
		await once(server, "listening");
		const { port } = server.address() as AddressInfo;
		const receiver = new Receiver(`http://127.0.0.1:${port}/hook`, async () => {
			server.closeAllConnections();
			server.close();
			await once(server, "close");
		});
		return receiver;
	}

	/** Waits until so many requests have arrived. Returns them. */
	async count(number: number): Promise<readonly Received[]> {
		await vi.waitFor(() => expect(this.received.length).toBeGreaterThanOrEqual(number), { timeout: 60_000 });
		return this.received;
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#close();
	}
}
