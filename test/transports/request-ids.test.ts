import { once } from "node:events";
import { connect } from "node:http2";
import { create } from "@bufbuild/protobuf";
import { type Client, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
	ConversationService,
	ListConversationsRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const ORIGIN = "https://page.example";

let service: TestService;

beforeAll(async () => {
	service = await startTestService({ CORS_ORIGINS: ORIGIN });
});
afterAll(() => service[Symbol.asyncDispose]());

/** Returns the request ids of the refusals in the log. */
function loggedIds(): unknown[] {
	const lines = service.log().split("\n").filter(Boolean);
	return lines
		.map((line) => JSON.parse(line))
		.flatMap(({ event, requestId }) => (event === "request_refused" ? [requestId] : []));
}

describe("the id of a request", () => {
	test("is in the response over HTTP/1.1, and in the log of a refusal", async () => {
		const id = async (fields: Record<string, string>, body: string) =>
			(await postWebhook(service, KEY, body, fields)).headers.get("x-request-id");
		expect(await id({ "X-Request-Id": "of-the-caller" }, JSON.stringify(record()))).toBe("of-the-caller");
		expect(await id({ "X-Request-Id": "of-a-refusal" }, "{}")).toBe("of-a-refusal");
		expect(await id({}, JSON.stringify(record()))).toMatch(UUID);
		expect(await id({ "X-Request-Id": "has a space" }, JSON.stringify(record()))).toMatch(UUID);
		expect(loggedIds()).toContain("of-a-refusal");
		expect(loggedIds()).not.toContain("of-the-caller");
	});

	test("is in the response over HTTP/2", async () => {
		const session = connect(service.http);
		const stream = session.request({ ":path": "/healthz", "x-request-id": "over-http2" });
		const [headers] = await once(stream.end(), "response");
		session.destroy();
		expect(headers["x-request-id"]).toBe("over-http2");
	});

	const grpc = () => createGrpcTransport({ baseUrl: `http://${service.grpc}` });
	const ways = {
		Connect: () => createConnectTransport({ baseUrl: service.http, httpVersion: "1.1" }),
		"gRPC-Web": () => createGrpcWebTransport({ baseUrl: service.http, httpVersion: "1.1" }),
		gRPC: grpc,
	};

	test.each(Object.entries(ways))(
		"is in the response and in the stream over %s, and in the log of a refusal",
		async (way, transport) => {
			const client: Client<typeof ConversationService> = createClient(ConversationService, transport());
			const call = async (id: string, key: string, pageToken = ""): Promise<string | null | undefined> => {
				let answered: string | null | undefined;
				try {
					await client.listConversations(create(ListConversationsRequestSchema, { pageToken }), {
						headers: { "X-Access-Token": key, "X-Request-Id": id },
						onHeader: (headers) => {
							answered = headers.get("x-request-id");
						},
					});
				} catch (error) {
					answered ??= ConnectError.from(error).metadata.get("x-request-id");
				}
				return answered;
			};
			expect(await call(`${way}:done`, KEY)).toBe(`${way}:done`);
			expect(await call(`${way}:unknown`, "wrong-key")).toBe(`${way}:unknown`);
			expect(await call(`${way}:refused`, KEY, "no token")).toBe(`${way}:refused`);
			expect(loggedIds().filter((id) => String(id).startsWith(`${way}:`))).toEqual([
				`${way}:unknown`,
				`${way}:refused`,
			]);

			const stop = new AbortController();
			let ofStream: string | null = null;
			const headers = { "X-Access-Token": KEY, "X-Request-Id": `${way}:stream` };
			const onHeader = (given: Headers) => {
				ofStream = given.get("x-request-id");
			};
			await client
				.watchConversationUpdates({}, { headers, onHeader, signal: stop.signal })
				[Symbol.asyncIterator]()
				.next();
			stop.abort();
			expect(ofStream).toBe(`${way}:stream`);
		},
	);

	test("may be read and set by pages of other origins", async () => {
		const fields = { Origin: ORIGIN };
		const answer = await postWebhook(service, KEY, JSON.stringify(record()), fields);
		expect(answer.headers.get("access-control-expose-headers")).toContain("x-request-id");
		const asked = await fetch(`${service.http}/openapi.json`, {
			method: "OPTIONS",
			headers: { Origin: ORIGIN, "Access-Control-Request-Method": "GET" },
		});
		expect(asked.headers.get("access-control-allow-headers")).toMatch(
			/x-request-id, Last-Event-ID, traceparent, tracestate\b/,
		);
	});
});
