import type { JsonObject } from "@bufbuild/protobuf";
import { deriveJsonSchemas } from "../../record/json-schema.ts";
import type { MessagePlan } from "../../record/plan/plan.ts";
import type { Route } from "../http/router.ts";
import { WEBHOOK_PATH } from "./webhook.ts";

/** Path of the document. It does not depend on the base path, so that it is found without knowing that. */
export const OPENAPI_PATH = "/openapi.json";

const COMPONENTS = "#/components/schemas/";

/**
 * Answers everyone with the OpenAPI document of the webhook. The document is made once.
 *
 * @param basePath prefix of the webhook's path: empty, or with a leading and no trailing slash
 * @param plan plan of the record that the webhook takes
 */
export function openApiRoute(basePath: string, plan: MessagePlan): Route {
	const text = JSON.stringify(openApiDocument(basePath, plan));
	return {
		method: "GET",
		path: OPENAPI_PATH,
		scope: "public",
		handle: async () => text,
	};
}

/** The webhook's interface as an OpenAPI 3.1.0 document (specification, "Endpoints", "Errors" and "Versioning"). */
function openApiDocument(basePath: string, plan: MessagePlan): JsonObject {
	return {
		openapi: "3.1.0",
		info: {
			title: "Conversation Update Webhook Service",
			summary: "Receives an agent server's conversation updates.",
			version: "0.0.1",
		},
		paths: { [basePath + WEBHOOK_PATH]: { post: operation(plan) } },
		components: {
			schemas: { ...deriveJsonSchemas(plan, COMPONENTS), ...ANSWERS },
			securitySchemes: { APIKeyHeader: { type: "apiKey", in: "header", name: "X-Access-Token" } },
		},
		tags: [{ name: "Webhooks", description: "What an agent server calls." }],
	};
}

function operation(plan: MessagePlan): JsonObject {
	return {
		operationId: "on_conversation_update_api_v1_webhooks_conversations_post",
		summary: "Take a conversation's record after it started, paused, resumed or was deleted",
		tags: ["Webhooks"],
		security: [{ APIKeyHeader: [] }],
		requestBody: {
			description: "The whole record. May be sent with the content coding gzip.",
			required: true,
			content: jsonOf(plan.desc.name),
		},
		responses: {
			200: { description: "The record is on disk.", content: jsonOf("Success") },
			400: failure("The gzip data is damaged."),
			401: failure("The access key is missing or not known.", {
				"WWW-Authenticate": { description: "The scheme that the key belongs to.", schema: { type: "string" } },
			}),
			403: failure("The access key lacks the scope for this."),
			413: failure("The body is larger than the limit."),
			415: failure("The body is not JSON, or has a content coding other than gzip."),
			422: { description: "The record breaks rules.", content: jsonOf("HTTPValidationError") },
			500: failure("The service failed unexpectedly."),
			503: failure("The record could not be stored now.", {
				"Retry-After": { description: "Seconds to wait before the next attempt.", schema: { type: "integer" } },
			}),
		},
	};
}

function failure(description: string, headers?: JsonObject): JsonObject {
	return { description, ...(headers === undefined ? {} : { headers }), content: jsonOf("Failure") };
}

function jsonOf(schema: string): JsonObject {
	return { "application/json": { schema: { $ref: COMPONENTS + schema } } };
}

/** What the webhook answers with, as transports/http/answer.ts writes it. */
const ANSWERS: JsonObject = {
	Success: {
		type: "object",
		properties: { success: { type: "boolean", default: true } },
	},
	Failure: {
		type: "object",
		properties: { detail: { type: "string" } },
		required: ["detail"],
	},
	HTTPValidationError: {
		type: "object",
		properties: { detail: { type: "array", items: { $ref: `${COMPONENTS}ValidationError` } } },
	},
	ValidationError: {
		type: "object",
		properties: {
			loc: { type: "array", items: { anyOf: [{ type: "string" }, { type: "integer" }] } },
			msg: { type: "string" },
			type: { type: "string" },
			input: {},
			ctx: { type: "object" },
		},
		required: ["loc", "msg", "type"],
	},
};
