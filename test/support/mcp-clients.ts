import type { JsonObject } from "@bufbuild/protobuf";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as EarlierStdioTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as EarlierHttpTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { object } from "./fixtures.ts";
import { ROOT } from "./start-command.ts";

/** An official client of the Model Context Protocol, with the calls that tests make. */
export interface McpClient extends AsyncDisposable {
	listTools(): Promise<{
		tools: { name: string; annotations?: unknown; inputSchema: unknown; outputSchema?: unknown }[];
	}>;
	callTool(call: { name: string; arguments: Record<string, unknown> }): Promise<Record<string, unknown>>;
	listResources(): Promise<{ resources: { uri: string; name: string }[] }>;
	readResource(of: { uri: string }): Promise<{ contents: unknown[] }>;
	listPrompts(): Promise<{ prompts: { name: string }[] }>;
	getPrompt(of: { name: string; arguments?: Record<string, string> }): Promise<{ messages: unknown[] }>;
	/** Version of the protocol that client and server speak. */
	readonly version: string | undefined;
}

/** Where a client connects: the URL of a service with its base path, and an access key. */
interface Target {
	readonly url: string;
	readonly key: string;
}

const INFO = { name: "test", version: "1.0.0" };
const PRESENT = "2026-07-28";
const pinned = () => new Client(INFO, { versionNegotiation: { mode: { pin: PRESENT } } });

/** Clients of both eras of the protocol, over both transports. */
export const MCP_CLIENTS: Readonly<Record<string, (target: Target) => Promise<McpClient>>> = {
	"2026 over HTTP": async (target) => {
		const client = pinned();
		await client.connect(new StreamableHTTPClientTransport(new URL(`${target.url}/mcp`), init(target)));
		return wrapped(client, client.getNegotiatedProtocolVersion());
	},
	"2025 over HTTP": async (target) => {
		const client = new EarlierClient(INFO);
		const transport = new EarlierHttpTransport(new URL(`${target.url}/mcp`), init(target));
		await client.connect(transport);
		return wrapped(client, transport.protocolVersion);
	},
	"2026 over stdio": async (target) => {
		const client = pinned();
		await client.connect(new StdioClientTransport(program(target)));
		return wrapped(client, client.getNegotiatedProtocolVersion());
	},
	"2025 over stdio": async (target) => {
		const client = new EarlierClient(INFO);
		await client.connect(new EarlierStdioTransport(program(target)));
		return wrapped(client, "2025-11-25");
	},
};

function wrapped(client: Client | EarlierClient, version: string | undefined): McpClient {
	return {
		listTools: () => client.listTools(),
		callTool: async (call) => object(JSON.parse(JSON.stringify(await client.callTool(call)))),
		listResources: () => client.listResources(),
		readResource: (of) => client.readResource(of),
		listPrompts: () => client.listPrompts(),
		getPrompt: (of) => client.getPrompt(of),
		version,
		[Symbol.asyncDispose]: () => client.close(),
	};
}

function init({ key }: Target) {
	return { requestInit: { headers: { Authorization: `Bearer ${key}` } } };
}

function program({ url, key }: Target) {
	return {
		command: process.execPath,
		args: ["dist/main.js", "mcp", "--url", url],
		cwd: ROOT,
		env: { MCP_ACCESS_KEY: key },
		stderr: "ignore" as const,
	};
}

/** Calls a tool that must succeed, and returns its answer. Its text must be the same. */
export async function toolAnswer(client: McpClient, name: string, args: Record<string, unknown>): Promise<JsonObject> {
	const { structuredContent, content, isError } = await client.callTool({ name, arguments: args });
	if (isError === true) throw new Error(`${name}: ${JSON.stringify(content)}`);
	const [block] = Array.isArray(content) ? content : [];
	const text = String(object(block).text);
	if (text !== JSON.stringify(structuredContent)) throw new Error("the text differs from the structured content");
	return object(JSON.parse(text));
}
