import type { Ingest } from "../../conversations/ingest/ingest.ts";
import { ServiceError } from "../../errors.ts";
import { readBody } from "../http/body.ts";
import { isJson } from "../http/media-type.ts";
import type { Route, RouteRequest } from "../http/router.ts";

/** Path of the conversation webhook under the configured base path (specification, "Conversation update callback"). */
export const WEBHOOK_PATH = "/api/v1/webhooks/conversations";

const SUCCESS = JSON.stringify({ success: true });

/** The agent server's callback: takes a record as JSON and answers success when it is on disk. */
export function conversationWebhook(basePath: string, maxBodyBytes: number, ingest: Ingest): Route {
	return webhookRoute(`${basePath}${WEBHOOK_PATH}`, maxBodyBytes, async (body) => {
		await ingest.json(body);
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
	take: (body: Buffer, params: RouteRequest["params"]) => Promise<void>,
): Route {
	return {
		method: "POST",
		path,
		scope: "ingest",
		handle: async ({ request, params }) => {
			if (!isJson(request.headers["content-type"]))
				throw new ServiceError("unsupported_media_type", "The body must be JSON (Content-Type: application/json)");
			await take(await readBody(request, maxBodyBytes), params);
			return SUCCESS;
		},
	};
}
