import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { zstdDecompressSync } from "node:zlib";
import { type ExactJsonObject, isJsonObject } from "../../src/record/json/json-value.ts";
import { withSpecificationNames } from "../support/vendor-names.ts";

/** Answers a request; returns false to leave it to the next one. */
export type Answer = (request: IncomingMessage, response: ServerResponse) => boolean;

/** Answers of a real agent server by their paths and queries, recorded with scripts/record-agent-server.ts. */
export function recordedAnswers(): Readonly<Record<string, string>> {
	const file = new URL("../fixtures/agent-server.json.zst", import.meta.url);
	const answers: unknown = JSON.parse(zstdDecompressSync(readFileSync(file)).toString());
	if (!isJsonObject(answers)) throw new TypeError("the recording is no object");
	return Object.fromEntries(Object.entries(answers).map(([path, body]) => [path, String(body)]));
}

/** An HTTP server on a real socket in place of an agent server. It keeps what it was asked. */
export class FakeAgentServer implements AsyncDisposable {
	readonly url: URL;
	/** Method, path and session key of each request. */
	readonly requests: string[] = [];
	/** Asked in this order; a request that none answers gets 404. */
	readonly answers: Answer[];
	readonly #close: () => Promise<void>;

	private constructor(url: URL, answers: Answer[], requests: string[], close: () => Promise<void>) {
		this.url = url;
		this.answers = answers;
		this.requests = requests;
		this.#close = close;
	}

	static async start(...answers: Answer[]): Promise<FakeAgentServer> {
		const requests: string[] = [];
		const server = createServer((request, response) => {
			requests.push(`${request.method} ${request.url} ${request.headers["x-session-api-key"] ?? "no key"}`);
			if (!answers.some((answer) => answer(request, response))) send(response, 404, `{"detail":"Not Found"}`);
		});
		server.listen(0, "127.0.0.1");
		await once(server, "listening");
		return new FakeAgentServer(new URL(`http://127.0.0.1:${portOf(server)}`), answers, requests, async () => {
			server.closeAllConnections();
			server.close();
			await once(server, "close");
		});
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#close();
	}
}

export function send(
	response: ServerResponse,
	status: number,
	body: string,
	headers: Record<string, string> = {},
): true {
	response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(body);
	return true;
}

/** Answers with what was recorded. */
export function replay(answers: Readonly<Record<string, string>>): Answer {
	return ({ url = "" }, response) => {
		const body = answers[url];
		return body === undefined ? false : send(response, 200, body);
	};
}

/** A conversation of {@link serve}. */
export interface Served {
	readonly record: ExactJsonObject;
	/** In the order in which the agent server logged them. */
	readonly events: readonly ExactJsonObject[];
}

/** Answers like the agent server's API, from a list of conversations that can change. */
export function serve(conversations: readonly Served[]): Answer {
	return ({ url = "" }, response) => {
		const { pathname, searchParams } = new URL(url, "http://localhost");
		const [, id, rest] = /^\/api\/conversations\/([^/]+)(\/events\/search)?$/.exec(pathname) ?? [];
		const found = conversations.find(({ record }) => record.id === id);
		const page = (items: readonly ExactJsonObject[]) => {
			const limit = Number(searchParams.get("limit"));
			const start = Math.max(
				0,
				items.findIndex((item) => item.id === searchParams.get("page_id")),
			);
			const next = items[start + limit]?.id ?? null;
			return send(response, 200, JSON.stringify({ items: items.slice(start, start + limit), next_page_id: next }));
		};
		if (id === "search") return page(conversations.map(({ record }) => record));
		if (found === undefined) return false;
		if (rest === undefined) return send(response, 200, JSON.stringify(found.record));
		return page(searchParams.get("sort_order") === "TIMESTAMP_DESC" ? found.events.toReversed() : found.events);
	};
}

function portOf(server: ReturnType<typeof createServer>): number {
	const address = server.address();
	if (address === null || typeof address === "string") throw new TypeError("the server does not listen on a port");
	return address.port;
}

/** The conversations of the recording: their records and events, as the agent server has them. */
export function recordedConversations(): readonly Served[] {
	const pages = Object.entries(recordedAnswers()).map(([path, body]) => ({ path, body }));
	return pages
		.filter(({ path }) => path.endsWith("?include_skills=true"))
		.map(({ path, body }) => {
			const id = path.split("/")[3]?.split("?")[0] ?? "";
			const events = pages
				.filter((page) => page.path.startsWith(`/api/conversations/${id}/events/search?sort_order=TIMESTAMP&`))
				.flatMap((page) => itemsOf(JSON.parse(page.body)));
			return { record: withSpecificationNames(body), events };
		});
}

function itemsOf(page: unknown): ExactJsonObject[] {
	if (!isJsonObject(page) || !Array.isArray(page.items)) throw new TypeError("the answer is no page");
	return page.items.filter(isJsonObject);
}
