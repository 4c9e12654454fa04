import type { DescMessage } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
	DeleteConversationRequestSchema,
	DeleteConversationsRequestSchema,
} from "../../../gen/conversations/v1/conversation_erase_service_pb.js";
import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import {
	ListConversationsRequestSchema,
	ListConversationUpdatesRequestSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { RetryRefusedPostsRequestSchema } from "../../../gen/conversations/v1/refused_post_service_pb.js";
import { Gate } from "../../../src/access/gate.ts";
import { Keyring } from "../../../src/access/keys.ts";
import { ServiceError } from "../../../src/errors.ts";
import { Admission } from "../../../src/transports/admission.ts";
import { observed } from "../../../src/transports/http/exchange.ts";
import { listenHttp } from "../../../src/transports/http/http-listener.ts";
import { createRouter, type Route } from "../../../src/transports/http/router.ts";
import { parametersOf, readRequest } from "../../../src/transports/reads/parameters.ts";
import { unobservedRequests } from "../../support/requests.ts";
import { silentLog } from "../../support/silent-log.ts";

const ID = "0190d6a0-0000-7000-8000-00000000000a";

/** Reads a request with a JSON body. */
function fromBody<Input extends DescMessage>(input: Input, body: unknown) {
	const text = typeof body === "string" ? body : JSON.stringify(body);
	const request = { params: {}, search: "", body: Buffer.from(text) };
	return readRequest(input, parametersOf(input, "/x", true), request);
}

const namesOf = (input: DescMessage, path: string, omitted?: readonly string[]) =>
	parametersOf(input, path, false, omitted).map(({ name, in: place }) => `${place} ${name}`);

test("the parameters are the variables of the path and the other fields, in the order of the fields", () => {
	expect(namesOf(DeleteConversationRequestSchema, "/x/{id}")).toEqual(["path id", "query with_children"]);
	expect(namesOf(ListConversationUpdatesRequestSchema, "/x/{id}/updates", ["view", "secrets"])).toEqual([
		"path id",
		...["after_sequence", "page_size", "page_token", "origin"].map((name) => `query ${name}`),
	]);
	const ofList = namesOf(ListConversationsRequestSchema, "/x");
	// The field for one status gives way to the parameter that is repeated for several.
	expect(ofList.filter((name) => name.includes("status"))).toEqual([
		"query execution_status",
		"query execution_status_not",
	]);
	expect(ofList.filter((name) => /tag|id/.test(name)).sort()).toEqual([
		...["query forked_from_conversation_id", "query id", "query parent_conversation_id", "query tag", "query tag_key"],
	]);
});

test("a variable of the path that is no field is a mistake in the table", () => {
	expect(() => parametersOf(DeleteConversationRequestSchema, "/x/{name}", false)).toThrow(
		"conversations.v1.DeleteConversationRequest has no field for {name} in /x/{name}",
	);
});

test("a request is read from its path and its query", () => {
	const parameters = parametersOf(ListConversationUpdatesRequestSchema, "/x/{id}", false);
	const request = { params: { id: ID.toUpperCase() }, search: "after_sequence=9&origin=events&view=full" };
	expect(readRequest(ListConversationUpdatesRequestSchema, parameters, request)).toMatchObject({
		...{ conversationId: ID, afterSequence: 9n, origin: 2, view: 2, pageSize: 0, pageToken: "", secrets: 0 },
	});
	expect(() =>
		readRequest(ListConversationUpdatesRequestSchema, parameters, { params: { id: "x" }, search: "" }),
	).toThrow(new ServiceError("invalid_argument", "id is not a UUID"));
});

test("a JSON body is the JSON form of the request, with words for the values of enums", () => {
	expect(
		fromBody(DeleteConversationsRequestSchema, {
			dryRun: true,
			max: 7,
			filter: {
				tags: { team: "red" },
				execution_statuses: ["idle", "CONVERSATION_EXECUTION_STATUS_RUNNING"],
				created_from: "2026-01-01T00:00:00Z",
				cost_from: 0.5,
				model: null,
				ids: [ID],
			},
		}),
	).toMatchObject({
		dryRun: true,
		max: 7,
		filter: {
			tags: { team: "red" },
			executionStatuses: [ConversationExecutionStatus.IDLE, ConversationExecutionStatus.RUNNING],
			createdFrom: { seconds: 1_767_225_600n, nanos: 0 },
			costFrom: 0.5,
			model: "",
			ids: [ID],
		},
	});
	expect(fromBody(RetryRefusedPostsRequestSchema, "")).toMatchObject({ ids: [], pageToken: "" });
});

test.each<[DescMessage, unknown, string]>([
	[RetryRefusedPostsRequestSchema, "{", "The body is not JSON"],
	[RetryRefusedPostsRequestSchema, "[]", "The body must be a JSON object with ids and page_token"],
	[RetryRefusedPostsRequestSchema, { ids: "7" }, "ids must be a list in which each value is a text"],
	[RetryRefusedPostsRequestSchema, { ids: ["7", 8] }, "ids must be a list in which each value is a text"],
	[RetryRefusedPostsRequestSchema, { page_token: 1 }, "page_token must be a text"],
	[RetryRefusedPostsRequestSchema, { color: 1 }, "The body has a member that is not known"],
	[RetryRefusedPostsRequestSchema, { page_token: "a", pageToken: "a" }, "page_token may be given only once"],
	[DeleteConversationsRequestSchema, { dry_run: "yes" }, "dry_run must be true or false"],
	[DeleteConversationsRequestSchema, { max: 1.5 }, "max must be a whole number"],
	[DeleteConversationsRequestSchema, { max: 2147483648 }, "max must be a whole number"],
	[DeleteConversationsRequestSchema, { filter: [] }, "filter must be an object"],
	[DeleteConversationsRequestSchema, { filter: { color: 1 } }, "filter has a member that is not known"],
	[
		DeleteConversationsRequestSchema,
		{ filter: { tags: { a: 1 } } },
		"filter.tags must be an object in which each value is a text",
	],
	[DeleteConversationsRequestSchema, { filter: { cost_from: "much" } }, "filter.cost_from must be a number"],
	[
		DeleteConversationsRequestSchema,
		{ filter: { execution_statuses: ["asleep"] } },
		"filter.execution_statuses must be a list in which each value is one of idle, running, paused, waiting_for_confirmation, finished, error, stuck, deleting",
	],
	[
		DeleteConversationsRequestSchema,
		{ filter: { created_to: "yesterday" } },
		"filter.created_to must be an ISO 8601 date-time such as 2026-01-31T12:00:00Z",
	],
])("the body of a %s that is %j is refused", (input, body, message) => {
	expect(() => fromBody(input, body)).toThrow(new ServiceError("invalid_argument", message));
});

test("a path with a verb is the route of the verb, and no other", async () => {
	const route = (method: Route["method"], path: string): Route => ({
		method,
		path,
		scope: "public",
		handle: async ({ params }) => JSON.stringify({ path, params }),
	});
	const routes = [route("GET", "/x/{id}"), route("POST", "/x/{id}:test"), route("POST", "/x:test")];
	const router = createRouter({
		routes,
		gate: new Gate(new Keyring([]), []),
		admission: new Admission(16 * 1024 * 1024),
	});
	const address = { host: "127.0.0.1", port: 0 };
	const listener = await listenHttp(
		{ address, tls: undefined, log: silentLog() },
		observed(unobservedRequests(), router),
	);
	const answerOf = async (method: string, path: string) => {
		const response = await fetch(`http://127.0.0.1:${listener.address.port}${path}`, { method });
		return [response.status, await response.json(), response.headers.get("Allow")];
	};
	try {
		expect([
			await answerOf("GET", "/x/a:b"),
			await answerOf("POST", "/x/a:b:test"),
			await answerOf("GET", "/x/a:test"),
			await answerOf("POST", "/x:test"),
			await answerOf("POST", "/x/:test"),
		]).toEqual([
			[200, { path: "/x/{id}", params: { id: "a:b" } }, null],
			[200, { path: "/x/{id}:test", params: { id: "a:b" } }, null],
			[405, { detail: "Method Not Allowed" }, "POST"],
			[200, { path: "/x:test", params: {} }, null],
			[405, { detail: "Method Not Allowed" }, "GET, HEAD"],
		]);
	} finally {
		listener.kill();
	}
});
