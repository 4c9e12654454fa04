import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { connect } from "node:http2";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
	ConversationView,
	SecretsMode,
	type WatchConversationUpdatesResponse,
	WatchPosition,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { type ConversationsClientOptions, createConversationsClient } from "../../src/client.ts";
import { said } from "../conversations/watch/watching.ts";
import { RELEASE_POLL, type WatchRequest } from "../support/watching.ts";
import { READ_KEY, SECRETS_KEY, WatchService } from "./watch-service.ts";

const ID = "0190d6a0-0000-7000-8000-000000000001";
const PATH = "/conversations.v1.ConversationService/WatchConversationUpdates";
const BEGINNING: WatchRequest = { start: { case: "position", value: WatchPosition.BEGINNING } };
type Watch = (request: WatchRequest, key?: string) => AsyncIterable<WatchConversationUpdatesResponse>;

let service: WatchService;

beforeEach(async () => {
	service = await WatchService.start();
});

afterEach(async () => {
	await service[Symbol.asyncDispose]();
});

const connectWatch = (protocol: NonNullable<ConversationsClientOptions["protocol"]>): Watch =>
	async function* (request, accessKey = READ_KEY) {
		const baseUrl = protocol === "grpc" ? `http://${service.grpc}` : service.http;
		const { conversations } = createConversationsClient({ baseUrl, accessKey, protocol });
		// Connect clients go on reading when the loop is left, unless the call is aborted.
		const left = new AbortController();
		try {
			yield* conversations.watchConversationUpdates(request, { signal: left.signal });
		} finally {
			left.abort();
		}
	};

const clients: readonly [string, Watch][] = [
	["gRPC", connectWatch("grpc")],
	["gRPC-Web", connectWatch("grpc-web")],
	["Connect", connectWatch("connect")],
];

/** Returns what the next `count` messages of a stream say. The stream stays open. */
async function take(messages: AsyncIterator<WatchConversationUpdatesResponse>, count: number) {
	const taken = [];
	while (taken.length < count) {
		const { value, done } = await messages.next();
		if (done === true) throw new Error(`the stream ended after ${taken.length} messages`);
		taken.push(said(value));
	}
	return taken;
}

/** Returns the code and the message with which a stream is refused. */
async function refusal(stream: AsyncIterable<unknown>): Promise<{ code: string; message: string }> {
	try {
		for await (const _ of stream);
	} catch (error) {
		const { code, rawMessage } = ConnectError.from(error);
		return { code: Code[code], message: rawMessage };
	}
	throw new Error("nothing was refused");
}

function followers(): number {
	return service.watches.recent.usage.followers;
}

test.each(clients)("over %s a watch sends history, a heartbeat and live updates until it is left", async (_, watch) => {
	await service.keep(3);
	const messages = watch(BEGINNING)[Symbol.asyncIterator]();
	expect(await take(messages, 4)).toEqual([1n, 2n, 3n, { at: 3n, latest: 3n }]);
	await service.keep(2);
	expect(await take(messages, 2)).toEqual([4n, 5n]);
	expect(followers()).toBe(1);
	await messages.return?.();
	await expect.poll(followers, RELEASE_POLL).toBe(0);
});

test.each(clients)("over %s an invalid request is refused with its code", async (_, watch) => {
	for (let index = 0; index < 3; index++) await service.reading.keep({ id: ID, title: `${index}` });
	await service.reading.pruneTo(1);
	const refused = async (request: WatchRequest) => (await refusal(watch(request))).code;
	expect(await refused({ start: { case: "afterSequence", value: 1n } })).toBe("OutOfRange");
	expect(await refused({ start: { case: "afterSequence", value: -1n } })).toBe("InvalidArgument");
	expect(await refused({ conversationId: "x" })).toBe("InvalidArgument");
	expect(await refused({ filter: { agentKind: "x" } })).toBe("InvalidArgument");
	expect(await refusal(watch({ secrets: SecretsMode.PLAINTEXT }))).toEqual({
		code: "PermissionDenied",
		message: 'The access key or client certificate lacks the scope "secrets"',
	});
	expect((await refusal(watch({}, "another key"))).code).toBe("Unauthenticated");
	expect(followers()).toBe(0);
});

test.each(clients)("over %s secrets are shown in the requested form", async (_, watch) => {
	await service.reading.keep({ id: ID, agent: { kind: "Agent", llm: { model: "m", api_key: "sk-canary" } } });
	const shown = async (secrets: SecretsMode, key?: string) => {
		for await (const { content } of watch({ ...BEGINNING, view: ConversationView.FULL, secrets }, key)) {
			const agent = content.case === "update" ? content.value.conversation?.agent?.kind : undefined;
			return agent?.case === "agent" ? agent.value.llm?.apiKey : undefined;
		}
		return undefined;
	};
	expect(await shown(SecretsMode.UNSPECIFIED)).toBe("**********");
	expect(await shown(SecretsMode.PLAINTEXT, SECRETS_KEY)).toBe("sk-canary");
	expect(await shown(SecretsMode.ENCRYPTED)).not.toContain("sk-canary");
});

test.each(clients)("over %s a watch ends with UNAVAILABLE when the service stops", async (_, watch) => {
	const stream = watch({});
	const messages = stream[Symbol.asyncIterator]();
	await take(messages, 1);
	const refused = refusal({ [Symbol.asyncIterator]: () => messages });
	await service.stop();
	expect(await refused).toEqual({ code: "Unavailable", message: "The service is stopping" });
});

test("the server releases clients that disconnect while they do not read, which is no failure", async () => {
	const large = { kind: "LocalWorkspace", working_dir: `/${"x".repeat(200_000)}` };
	for (let index = 0; index < 40; index++) await service.reading.keep({ id: ID, title: `${index}`, workspace: large });
	// A request from the beginning (field 2) with whole records (field 5). All protocols frame it in the same way.
	const body = Buffer.from([0, 0, 0, 0, 4, 2 << 3, WatchPosition.BEGINNING, 5 << 3, ConversationView.FULL]);
	const key = { "x-access-token": READ_KEY };
	const session = connect(`http://${service.grpc}`);
	const grpc = { ":method": "POST", ":path": PATH, "content-type": "application/grpc", te: "trailers" };
	const stream = session.request({ ...grpc, ...key });
	const requests = ["application/connect+proto", "application/grpc-web+proto"].map((type) =>
		httpRequest(`${service.http}${PATH}`, { method: "POST", headers: { ...key, "content-type": type } }),
	);
	// All responses have begun, but no client reads its body.
	const begun = [stream, ...requests].map((request) => once(request, "response"));
	for (const request of [stream, ...requests]) request.on("error", () => undefined).end(body);
	await Promise.all(begun);
	expect(followers()).toBe(3);
	session.destroy();
	for (const request of requests) request.socket?.resetAndDestroy();
	await expect.poll(followers, RELEASE_POLL).toBe(0);
	await service.stop();
	expect(service.logged.filter((line) => line.includes("request_failed"))).toEqual([]);
});
