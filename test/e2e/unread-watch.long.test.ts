import { create, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
	ConversationService,
	ConversationView,
	WatchConversationUpdatesRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { postWebhook, readClient, rpcPath } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { postBytes } from "../support/raw-http.ts";
import { framed } from "../support/raw-rpc.ts";
import { httpAddress, openSocket } from "../support/raw-socket.ts";
import { KEY, startTestService } from "../support/service.ts";

/** Number of updates that together exceed the socket buffers of both sides. */
const UPDATES = 16;
const UPDATE_BYTES = 1_000_000;

const method = ConversationService.method.watchConversationUpdates;
const request = { view: ConversationView.FULL } as const;
const message = toBinary(WatchConversationUpdatesRequestSchema, create(WatchConversationUpdatesRequestSchema, request));

test.each([
	["connect", "application/connect+proto"],
	["gRPC-Web", "application/grpc-web+proto"],
] as const)(
	"a client that disconnects from a watch without reading it, over %s, is not logged as a failure",
	async (protocol, type) => {
		await using service = await startTestService();
		const bytes = postBytes(rpcPath(method), { "Content-Type": type, "X-Access-Token": KEY }, framed(message));
		const socket = openSocket(httpAddress(service)).pause();
		socket.write(bytes);

		// A second watch, which is read, shows when the service has sent the updates that fill the buffers of the first.
		const end = new AbortController();
		let seen = 0;
		const reading = (async () => {
			for await (const { content } of readClient(service, protocol, KEY).watchConversationUpdates(request, {
				signal: end.signal,
			}))
				if (content.case === "update") seen += 1;
		})().catch(() => undefined);
		for (let update = 0; update < UPDATES; update++) {
			const posted = await postWebhook(service, KEY, JSON.stringify(record({ title: "x".repeat(UPDATE_BYTES) })));
			expect(posted.status).toBe(200);
		}
		await expect.poll(() => seen, { timeout: 30_000 }).toBeGreaterThan(UPDATES / 2);
		end.abort();
		await reading;
		socket.resetAndDestroy();
		await service.stop();
		expect(service.log()).not.toContain("request_failed");
	},
);
