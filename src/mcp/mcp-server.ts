import type { IncomingHttpHeaders } from "node:http";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import {
	createMcpHandler,
	isLegacyRequest,
	McpServer,
	ProtocolError,
	ProtocolErrorCode,
	ResourceNotFoundError,
	ResourceTemplate,
	WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";
import { ServiceError } from "../errors.ts";
import { packageJson } from "../package-json.ts";
import { type Ask, NOTICE, TOOLS, type Tool } from "./tools.ts";

interface McpOptions {
	readonly ask: Ask;
	/** Called with the error of each tool or resource that fails. */
	readonly onFailed: (error: unknown) => void;
}

const INSTRUCTIONS = `Reads recorded conversations of coding agents: their records, events, usage, gaps and scores. Nothing can be changed. Begin with search_conversations or list_conversations, then read_events. Each answer is bounded by max_bytes, and how_to_go_on says how to read more. ${NOTICE}`;
const FRAME = {
	notice: z.string(),
	how_to_go_on: z.string().describe("How to read more; empty if this is all"),
};
const LISTED = 10;
/** Milliseconds of the time that "since yesterday" means. */
const DAY = 86_400_000;

/** Makes a server of the Model Context Protocol. It serves one request, or one client over stdio. */
function newMcpServer(options: McpOptions): McpServer {
	const { name, version } = packageJson();
	// The lists never change while the server lives.
	const fixed = { listChanged: false };
	const capabilities = { tools: fixed, resources: fixed, prompts: fixed };
	const server = new McpServer({ name, version }, { instructions: INSTRUCTIONS, capabilities });
	for (const tool of TOOLS) addTool(server, tool, options);
	addResources(server, options);
	addPrompts(server);
	return server;
}

/** Headers of a request that the protocol defines, besides `Accept`. */
const HEADERS = ["content-type", "mcp-protocol-version", "mcp-method", "mcp-name"];

/** Answers an HTTP request with one JSON response. A server is made for each request, so nothing is kept between them. */
export async function answerMcp(options: McpOptions, headers: IncomingHttpHeaders, body: Buffer): Promise<Response> {
	// The library asks for both types, also where the client takes only one.
	const given = new Headers({ Accept: "application/json, text/event-stream" });
	for (const name of HEADERS) {
		const value = headers[name];
		if (typeof value === "string") given.set(name, value);
	}
	const text = withoutNulls(body.toString());
	const request = new Request("http://localhost/mcp", { method: "POST", headers: given, body: text });
	const make = () => newMcpServer(options);
	if (!(await isLegacyRequest(request)))
		// Nothing that is listed changes, so there is nothing to subscribe to, and no response stays open.
		return await createMcpHandler(make, { legacy: "reject", maxSubscriptions: 0 }).fetch(request);
	const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
	await make().connect(transport);
	return await transport.handleRequest(request);
}

const message = z.looseObject({ params: z.looseObject({ arguments: z.looseObject({}).optional() }) });

/**
 * Returns the JSON text of a message without the arguments, and without the cursor, that are null: clients send null for
 * what they leave out. A text that is no message stays as it is.
 */
export function withoutNulls(text: string): string {
	if (!text.includes("null")) return text;
	let json: unknown;
	try {
		json = JSON.parse(text);
	} catch {
		return text;
	}
	const parsed = message.safeParse(json);
	if (!parsed.success) return text;
	const { params, ...rest } = parsed.data;
	const { cursor, arguments: args, ...others } = params;
	const given = args && Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null));
	// What is undefined has no place in a JSON text.
	return JSON.stringify({ ...rest, params: { ...others, cursor: cursor ?? undefined, arguments: given } });
}

function addTool(server: McpServer, tool: Tool, { ask, onFailed }: McpOptions): void {
	const { name, description, input, output } = tool;
	const title = name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
	const annotations = { title, readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false };
	const outputSchema = z.object({ ...FRAME, ...output.shape });
	server.registerTool(name, { title, description, inputSchema: input, outputSchema, annotations }, async (args) => {
		try {
			const answer = await tool.answer(ask, args);
			return { structuredContent: answer, content: [{ type: "text", text: JSON.stringify(answer) }] };
		} catch (error) {
			onFailed(error);
			return { isError: true, content: [{ type: "text", text: messageOf(error) }] };
		}
	});
}

/** Returns what a client learns of an error. */
function messageOf(error: unknown): string {
	return error instanceof ServiceError ? error.message : "Internal error";
}

function addResources(server: McpServer, { ask, onFailed }: McpOptions): void {
	const answer = async (name: string, args: unknown, uri: string) => {
		const tool = TOOLS.find((one) => one.name === name);
		try {
			if (tool === undefined) throw new TypeError(`there is no tool ${name}`);
			return await tool.answer(ask, args);
		} catch (error) {
			onFailed(error);
			if (error instanceof ServiceError && error.kind === "not_found")
				throw new ResourceNotFoundError(uri, error.message);
			throw new ProtocolError(ProtocolErrorCode.InternalError, messageOf(error));
		}
	};
	const listed = z.object({
		conversations: z.array(z.object({ summary: z.looseObject({ id: z.string(), title: z.string().optional() }) })),
	});
	const list = async () => {
		const args = { order_by: "activity", page_size: LISTED, max_bytes: 16_384 };
		const { conversations } = listed.parse(await answer("list_conversations", args, "conversation://"));
		return {
			resources: conversations.map(({ summary: { id, title = "" } }) => ({
				uri: `conversation://${id}`,
				name: title === "" ? id : title,
				mimeType: "application/json",
			})),
		};
	};
	server.registerResource(
		"conversation",
		new ResourceTemplate("conversation://{id}", { list }),
		{
			title: "Conversation",
			description: `Summary and record of a conversation, at most 8 KB. The list has the ${LISTED} most recently active ones. ${NOTICE}`,
			mimeType: "application/json",
		},
		async (uri, { id }) => {
			const found = await answer("get_conversation", { conversation_id: id }, uri.href);
			return { contents: [{ uri: uri.href, mimeType: "application/json", text: JSON.stringify(found) }] };
		},
	);
}

function addPrompts(server: McpServer): void {
	const message = (text: string) => ({
		messages: [{ role: "user" as const, content: { type: "text" as const, text: `${text}\n\n${NOTICE}` } }],
	});
	server.registerPrompt(
		"what_failed_since_yesterday",
		{
			title: "What failed since yesterday",
			description: "Finds the conversations that failed, got stuck or have gaps, and why.",
			argsSchema: z.object({
				since: z.iso.datetime({ offset: true }).optional().describe("ISO 8601 date-time; 24 hours ago by default"),
			}),
		},
		({ since = new Date(Date.now() - DAY).toISOString() }) =>
			message(`Find out which recorded conversations failed since ${since}, and why.

1. count_conversations with activity_from "${since}" and group_by "status".
2. list_conversations with activity_from "${since}" and execution_status ["error", "stuck"], then with has_error true, then with has_gaps true. Follow the pages.
3. For each conversation that failed, read_events for its newest events, and read around the error. For one with gaps, list_gaps.

Report each conversation with its id, its title, what it tried, what went wrong by which event (its sequence), and which of them failed for the same reason. Say what you did not read.`),
	);
	server.registerPrompt(
		"what_was_tried_before",
		{
			title: "What was tried before",
			description: "Finds earlier work on a task, what it came to and what it cost.",
			argsSchema: z.object({ task: z.string().min(1).max(2_000).describe("The task, an error message or a file") }),
		},
		({ task }) =>
			message(`Find out what recorded conversations have tried before about this:

${task}

1. search_conversations with its most telling words; then with other words, file names or the text of an error.
2. For the best hits, get_conversation, and read_events with around = the sequence of the place of the hit; then the last events, to see how it ended.
3. If several tried the same, compare_conversations.

Report for each attempt its id, model, outcome and cost, what worked and what did not, with the sequences of the events that show it. Say what you did not read.`),
	);
}

/** Milliseconds after which a read that is not answered fails. */
const TIMEOUT = 60_000;

/**
 * Serves a client of the Model Context Protocol over standard input and output, until it closes the input. What it reads
 * comes from the HTTP API of a running service.
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
