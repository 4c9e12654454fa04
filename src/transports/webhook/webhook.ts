import { ConversationEventIngestService } from "../../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationIngestService } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { rpcPath } from "../../access/gate.ts";
import { posterOf } from "../../access/keys.ts";
import type { EventIngest } from "../../conversations/ingest/event-ingest.ts";
import type { Ingest } from "../../conversations/ingest/ingest.ts";
import { ServiceError } from "../../errors.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import type { Poster } from "../../store/owners.ts";
import type { PostForm } from "../../store/refused-posts.ts";
import { isJson, readBody } from "../http/body.ts";
import type { Route, RouteRequest } from "../http/router.ts";

/** Path, under the configured base path, of the base URL that an agent server is configured with. */
const BASE_URL = "/api/v1/webhooks";
/** Path of the conversation webhook under the configured base path (specification, "Conversation update callback"). */
export const WEBHOOK_PATH = `${BASE_URL}/conversations`;
/** Path of the event webhook under the configured base path. The conversation id follows. */
export const EVENT_WEBHOOK_PATH = `${BASE_URL}/events`;

const SUCCESS = JSON.stringify({ success: true });

/**
 * Returns the routes of the webhooks. That of conversations takes a record as JSON, that of events a batch; they report
 * success when all is on disk. The agent server also posts the OAuth tokens of its MCP servers: this service has no use
 * for them, so it refuses such a request without reading its body.
 */
export function webhookRoutes(
	basePath: string,
	maxBodyBytes: number,
	ingest: Ingest,
	eventIngest: Pick<EventIngest, "json">,
): Route[] {
	const post = { method: "POST", scope: "ingest" } as const;
	return [
		{
			...post,
			path: `${basePath}${WEBHOOK_PATH}`,
			handle: webhook(maxBodyBytes, (body, poster, { signal }) => ingest.json(body, poster, signal)),
		},
		{
			...post,
			path: `${basePath}${EVENT_WEBHOOK_PATH}/{id}`,
			handle: webhook(maxBodyBytes, (body, poster, { params, signal }) =>
				eventIngest.json(conversationIdOf(params.id ?? ""), body, poster, signal),
			),
		},
		{
			...post,
			path: `${basePath}${BASE_URL}/mcp-oauth-state`,
			handle: async () => {
				throw new ServiceError("not_found", "This service does not keep the OAuth state of MCP servers");
			},
		},
	];
}

/**
 * Returns the conversation id that a path segment contains.
 *
 * @throws ServiceError `invalid_record` for a segment that is not a UUID, located as FastAPI locates a path parameter
 */
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

/** Takes a body, which need not be valid JSON. */
type Take = (body: Buffer, poster: Poster, call: RouteRequest) => Promise<unknown>;

/** Returns what handles the posts of an agent server. It reports success when `take` has resolved. */
function webhook(maxBodyBytes: number, take: Take): Route["handle"] {
	return async (call) => {
		const { request, principal, permit, observed } = call;
		if (principal === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
		if (!isJson(request.headers["content-type"]))
			throw new ServiceError("unsupported_media_type", "The body must be JSON (Content-Type: application/json)");
		const body = await readBody(request, maxBodyBytes, (bytes) => permit.reserve(bytes));
		observed.received(body);
		await take(body, posterOf(principal), call);
		return SUCCESS;
	};
}

/** Returns the paths of the routes and RPCs by which posts arrive. */
export function postRoutes(basePath: string): Readonly<Record<PostForm, string>> {
	return {
		record_json: `${basePath}${WEBHOOK_PATH}`,
		events_json: `${basePath}${EVENT_WEBHOOK_PATH}/{id}`,
		record_message: rpcPath(ConversationIngestService.method.ingestConversation),
		events_message: rpcPath(ConversationEventIngestService.method.ingestConversationEvents),
	};
}
