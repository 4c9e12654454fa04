import { ServiceError } from "../errors.ts";
import { readBody } from "../transports/http/body.ts";
import { innerReads, type Route, type RouteRequest } from "../transports/http/router.ts";

/** Path of the endpoint under the configured base path. */
const MCP_PATH = "/mcp";
/** Headers of the protocol that pages may send. */
export const MCP_HEADERS: readonly string[] = ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"];
/** Maximum bytes of a request, which has the arguments of one call. */
const MAX_REQUEST_BYTES = 256 * 1024;

interface McpRouteOptions {
	readonly basePath: string;
	/** Routes of the JSON reads. They limit each caller to what it may see. */
	readonly reads: readonly Route[];
	/** Origins whose pages may call; `*` allows every origin. */
	readonly origins: readonly string[];
}

/**
 * Returns the routes of the Model Context Protocol: streamable HTTP without sessions, with one JSON response to each
 * request, for clients of the protocol of 2026 and of earlier ones.
 */
export function mcpRoutes({ basePath, reads, origins }: McpRouteOptions): readonly Route[] {
	const read = innerReads(reads);
	const post = {
		method: "POST",
		scope: "read",
		handle: async (call: RouteRequest) => {
			const { request, permit, observed } = call;
			requireOrigin(request.headers.origin, origins);
			const body = await readBody(request, MAX_REQUEST_BYTES, (bytes) => permit.reserve(bytes));
			observed.received(body);
			// Loaded with the first request, because few services have one.
			const { answerMcp } = await import("./mcp-server.ts");
			const response = await answerMcp(
				{
					ask: (path, query) => read(call, `${basePath}${path}`, query.toString()),
					onFailed: (error) => observed.failed(error),
				},
				request.headers,
				body,
			);
			return {
				status: response.status,
				content: Buffer.from(await response.arrayBuffer()),
				type: response.headers.get("Content-Type") ?? "application/json",
			};
		},
	} as const;
	// Clients of the earlier protocols ask whether the server has a stream of notifications. It is no failure.
	const get = {
		method: "GET",
		scope: "read",
		isRefusal: true,
		handle: async () => ({ status: 405, content: "", type: "application/json", headers: { Allow: "POST" } }),
	} as const;
	const paths = [`${basePath}${MCP_PATH}`, `${basePath}${MCP_PATH}/`];
	return paths.flatMap((path) => [post, get].map((route) => ({ ...route, path })));
}

/** @throws ServiceError `permission_denied` for a request of a page whose origin is not among the given ones */
function requireOrigin(origin: string | undefined, origins: readonly string[]): void {
	if (origin === undefined || origins.includes("*") || origins.includes(origin)) return;
	throw new ServiceError("permission_denied", "Pages of this origin may not call: CORS_ORIGINS does not name it");
}
