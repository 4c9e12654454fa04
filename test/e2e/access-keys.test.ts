import { once } from "node:events";
import { request as request1 } from "node:http";
import { connect } from "node:http2";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { accessKeyClient, postWebhook, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService } from "../support/service.ts";

const ADMIN = "key-of-the-administrator";
const ENV = {
	ACCESS_KEYS: `test:${KEY},admin:${ADMIN}:ingest+read+secrets+metrics+keys`,
};

test("over gRPC, a key works from its creation until it is revoked, which ends its watches", async () => {
	await using service = await startTestService(ENV);
	const admin = accessKeyClient(service, "gRPC", ADMIN);
	const { key, accessKey } = await admin.createAccessKey({ name: "agent" });
	expect(key).toMatch(/^[\w-]{43}$/);
	expect(accessKey).toMatchObject({ name: "agent", scopes: ["ingest", "read"], owner: "", createdBy: "admin" });
	expect((await postWebhook(service, key, JSON.stringify(record()))).status).toBe(200);
	const { accessKeys } = await admin.listAccessKeys({});
	expect(accessKeys.map(({ name, configured }) => [name, configured])).toEqual([
		["admin", true],
		["agent", false],
		["test", true],
	]);
	expect(accessKeys[1]?.lastUsedAt).toBeDefined();
	/** Opens a watch, and returns the promise of its next message once it has caught up. */
	const watched = async (of: string) => {
		const messages = readClient(service, "gRPC", of).watchConversationUpdates({})[Symbol.asyncIterator]();
		await messages.next();
		return { next: messages.next() };
	};
	const [watch, other] = [await watched(key), await watched(KEY)];
	const ended = expect(watch.next).rejects.toMatchObject({
		...{ code: Code.Unauthenticated, rawMessage: "The access key was revoked or has expired" },
	});
	const { accessKey: after } = await admin.revokeAccessKey({ name: "agent" });
	expect(after?.revokedAt).toBeDefined();
	await ended;
	expect((await postWebhook(service, key, JSON.stringify(record()))).status).toBe(401);
	await expect(readClient(service, "gRPC", key).listConversations({})).rejects.toMatchObject({
		...{ code: Code.Unauthenticated, rawMessage: "The access key is not known" },
	});
	// A watch with another key goes on.
	expect((await postWebhook(service, KEY, JSON.stringify(record()))).status).toBe(200);
	await other.next;
	const lines = service.log().split("\n");
	expect(lines.filter((line) => line.includes('"event":"access_key')).map((line) => JSON.parse(line))).toMatchObject([
		{ event: "access_key_created", name: "agent", scopes: ["ingest", "read"], owner: "", caller: "admin" },
		{ event: "access_key_revoked", name: "agent", caller: "admin" },
	]);
	expect(service.log()).not.toContain(key);
});

type Fields = readonly (readonly [name: string, value: string])[];

/** Sends header fields as they are over HTTP/1.1. Returns the status. */
async function statusOverHttp1(url: URL, method: string, fields: Fields): Promise<string> {
	const request = request1(url, { method, headers: [["Host", url.host], ...fields].flat() });
	request.end(method === "GET" ? "" : "{}");
	const [response] = await once(request, "response");
	response.resume();
	return String(response.statusCode);
}

/** Sends header fields as they are over HTTP/2. Returns the status, and for a gRPC call its own. */
async function statusOverHttp2(url: URL, method: string, fields: Fields): Promise<string> {
	// Without this option Node.js refuses to send two of them. Its types lack it.
	const options: object = { strictSingleValueFields: false };
	const session = connect(url, options);
	try {
		const pseudo = { ":method": method, ":path": url.pathname, ":scheme": "http", ":authority": url.host };
		const stream = session.request([...Object.entries(pseudo), ...fields].flat());
		let status = "";
		stream.on("response", (headers) => (status = String(headers["grpc-status"] ?? headers[":status"])));
		stream.on("trailers", (headers) => (status = String(headers["grpc-status"] ?? status)));
		// An empty message, which a gRPC call begins with its length.
		const isGrpc = fields.some(([, value]) => value === "application/grpc");
		stream.end(isGrpc ? Buffer.alloc(5) : method === "GET" ? undefined : "{}");
		stream.resume();
		await once(stream, "close");
		return status;
	} finally {
		session.destroy();
	}
}

test.each(["HTTP/1.1", "HTTP/2", "Connect over HTTP/1.1", "Connect over HTTP/2", "gRPC"])(
	"over %s, two different keys in fields of the same name are refused",
	async (protocol) => {
		await using service = await startTestService(ENV);
		const isRpc = protocol.startsWith("Connect") || protocol === "gRPC";
		const path = isRpc ? "/conversations.v1.ConversationService/ListConversations" : "/api/v1/conversations";
		const url = new URL(path, protocol === "gRPC" ? `http://${service.grpc}` : service.http);
		const type = protocol === "gRPC" ? "application/grpc" : "application/json";
		const send = protocol.endsWith("HTTP/1.1") ? statusOverHttp1 : statusOverHttp2;
		const status = (...fields: Fields) =>
			send(url, isRpc ? "POST" : "GET", [["content-type", type], ["te", "trailers"], ...fields]);
		const [accepted, refused] = protocol === "gRPC" ? ["0", "16"] : ["200", "401"];
		const [own, other, basic] = [`Bearer ${KEY}`, `Bearer ${ADMIN}`, "Basic dXNlcjpwYXNz"];
		expect(await status(["authorization", own], ["authorization", own])).toBe(accepted);
		expect(await status(["authorization", basic], ["authorization", own])).toBe(accepted);
		expect(await status(["x-access-token", KEY], ["x-session-api-key", "of the agent server"])).toBe(accepted);
		expect(await status(["authorization", own], ["authorization", other])).toBe(refused);
		expect(await status(["authorization", other], ["authorization", own])).toBe(refused);
		expect(await status(["x-access-token", KEY], ["x-access-token", ADMIN])).toBe(refused);
		expect(await status(["x-session-api-key", KEY], ["x-session-api-key", ADMIN])).toBe(refused);
	},
);

test("responses are kept by nobody, and are not taken for another type", async () => {
	await using service = await startTestService(ENV);
	await postWebhook(service, KEY, JSON.stringify(record()));
	const { id } = record();
	const reads = [
		["/api/v1/conversations", "application/json"],
		[`/api/v1/conversations/${String(id)}`, "application/json"],
		["/api/v1/conversations/counts?group_by=model", "application/json"],
		["/api/v1/conversations?page_size=no", "application/json"],
		["/api/v1/usage", "application/json"],
		["/api/v1/usage", "text/csv"],
		["/api/v1/events:watch", "text/event-stream"],
	];
	for (const [path = "", type = ""] of reads) {
		const over = new AbortController();
		const headers = { "X-Access-Token": KEY, Accept: type };
		const answer = await fetch(service.http + path, { headers, signal: over.signal });
		const names = ["content-type", "cache-control", "x-content-type-options"];
		const [sent, ...others] = names.map((name) => answer.headers.get(name));
		over.abort();
		expect([path, sent?.split(";")[0], ...others]).toEqual([path, type, "no-store", "nosniff"]);
	}
});
