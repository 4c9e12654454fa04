import type { Ingest } from "../../conversations/ingest/ingest.ts";
import { ServiceError } from "../../errors.ts";
import { sendText } from "../http/answer.ts";
import { readBody } from "../http/body.ts";
import { isJson } from "../http/media-type.ts";
import type { Route } from "../http/router.ts";

/** Path of the webhook under the configured base path (specification, "Conversation update callback"). */
export const WEBHOOK_PATH = "/api/v1/webhooks/conversations";

const SUCCESS = JSON.stringify({ success: true });

/** The agent server's callback: takes a record as JSON and answers success when it is on disk. */
export function webhookRoute(basePath: string, maxBodyBytes: number, ingest: Ingest): Route {
	return {
		method: "POST",
		path: `${basePath}${WEBHOOK_PATH}`,
		scope: "ingest",
		handle: async ({ request, response }) => {
			if (!isJson(request.headers["content-type"]))
				throw new ServiceError("unsupported_media_type", "The body must be JSON (Content-Type: application/json)");
			const body = await readBody(request, maxBodyBytes);
			await ingest.json(body);
			sendText(response, 200, SUCCESS);
		},
	};
}
