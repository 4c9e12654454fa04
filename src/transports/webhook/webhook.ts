import type { EventIngest } from "../../conversations/ingest/event-ingest.ts";
import type { Ingest } from "../../conversations/ingest/ingest.ts";
import { ServiceError } from "../../errors.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import { readBody } from "../http/body.ts";
import { isJson } from "../http/media-type.ts";
import type { Route, RouteRequest } from "../http/router.ts";

/** What an agent server is given as the base of its addresses, under the configured base path. */
const BASE_URL = "/api/v1/webhooks";
/** Path of the conversation webhook under the configured base path (specification, "Conversation update callback"). */
export const WEBHOOK_PATH = `${BASE_URL}/conversations`;
/** Path of the event webhook under the configured base path, before the conversation's id. */
export const EVENT_WEBHOOK_PATH = `${BASE_URL}/events`;

const SUCCESS = JSON.stringify({ success: true });

/** The agent server's callback: takes a record as JSON and answers success when it is on disk. */
export function conversationWebhook(basePath: string, maxBodyBytes: number, ingest: Ingest): Route {
	return webhookRoute(`${basePath}${WEBHOOK_PATH}`, maxBodyBytes, async (body, _, signal) => {
		await ingest.json(body, signal);
	});
}

/** The agent server's other callback: takes a batch of a conversation's events and answers success when all are on disk. */
export function eventWebhook(basePath: string, maxBodyBytes: number, ingest: Pick<EventIngest, "json">): Route {
	return webhookRoute(`${basePath}${EVENT_WEBHOOK_PATH}/{id}`, maxBodyBytes, async (body, { id = "" }, signal) => {
		await ingest.json(conversationIdOf(id), body, signal);
	});
}

/**
 * Where the agent server posts the OAuth tokens of its MCP servers. They are none of this service's business: they are
 * refused unread.
 */
export function oauthStateRoute(basePath: string): Route {
	return {
		method: "POST",
		path: `${basePath}${BASE_URL}/mcp-oauth-state`,
		scope: "ingest",
		logsOncePerKey: true,
		handle: async () => {
			throw new ServiceError("not_found", "This service does not keep the OAuth state of MCP servers");
		},
	};
}

/** @throws ServiceError `invalid_record` that names the segment as FastAPI names a path parameter */
function conversationIdOf(segment: string): string {
	const id = parseUuid(segment);
	if (id !== undefined) return id;
	throw new ServiceError("invalid_record", "the conversation's id in the path is not a UUID", {
		violations: [
			{
				part: "path",
				path: ["conversation_id"],
				type: "uuid_parsing",
				message: "Input should be a valid UUID",
				context: { error: "not a UUID" },
			},
		],
	});
}

/**
 * A route to which an agent server posts JSON. It answers success when `take` is done.
 *
 * @param maxBodyBytes most bytes of a body, after decompression
 * @param take takes a body, which need not be JSON
 */
function webhookRoute(
	path: string,
	maxBodyBytes: number,
	take: (body: Buffer, params: RouteRequest["params"], signal: RouteRequest["signal"]) => Promise<void>,
): Route {
	return {
		method: "POST",
		path,
		scope: "ingest",
		handle: async ({ request, params, permit, signal, seen }) => {
			if (!isJson(request.headers["content-type"]))
				throw new ServiceError("unsupported_media_type", "The body must be JSON (Content-Type: application/json)");
			const body = await readBody(request, maxBodyBytes, (bytes) => permit.take(bytes));
			seen.received(body.length);
			const done = permit.work();
			try {
				await take(body, params, signal);
			} finally {
				done();
			}
			return SUCCESS;
		},
	};
}
