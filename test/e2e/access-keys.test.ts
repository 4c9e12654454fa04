import { once } from "node:events";
import { request as request1 } from "node:http";
import { connect } from "node:http2";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import {
	accessKeyClient,
	type Endpoints,
	PROTOCOLS,
	type Protocol,
	postWebhook,
	readClient,
} from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService } from "../support/service.ts";

const ADMIN = "key-of-the-administrator";
const TEAM_ADMIN = "key-of-an-administrator-of-team-a";
const ENV = {
	ACCESS_KEYS: `test:${KEY},admin:${ADMIN}:ingest+read+secrets+metrics+keys,team:${TEAM_ADMIN}:read+keys@team-a`,
};

/** Returns the code and the message of the error that ends a promise. */
async function failure(promise: Promise<unknown>): Promise<readonly [string | undefined, string]> {
	const error = await promise.then(
		() => undefined,
		(reason: unknown) => ConnectError.from(reason),
	);
	return [error && Code[error.code], error?.rawMessage ?? ""];
}

/** Opens a watch, and returns the promise of its end once the watch has caught up. */
async function watched(service: Endpoints, protocol: Protocol, key: string): Promise<{ ended: Promise<unknown> }> {
	const messages = readClient(service, protocol, key).watchConversationUpdates({})[Symbol.asyncIterator]();
	await messages.next();
	return { ended: messages.next() };
}

const revoked = ["Unauthenticated", "The access key was revoked or has expired"];

test.each(PROTOCOLS)(
	"over %s, a key works from its creation until it is revoked, which ends its watches",
	async (protocol) => {
		await using service = await startTestService(ENV);
		const admin = accessKeyClient(service, protocol, ADMIN);
		const { key, accessKey } = await admin.createAccessKey({ name: "agent" });
		expect(key).toMatch(/^[\w-]{43}$/);
		expect(accessKey).toMatchObject({ name: "agent", scopes: ["ingest", "read"], owner: "", createdBy: "admin" });
		expect((await postWebhook(service, key, JSON.stringify(record()))).status).toBe(200);
		const { accessKeys } = await admin.listAccessKeys({});
		expect(accessKeys.map(({ name, configured }) => [name, configured])).toEqual([
			["admin", true],
			["agent", false],
			["team", true],
			["test", true],
		]);
		expect(accessKeys[1]?.lastUsedAt).toBeDefined();
		const watch = await watched(service, protocol, key);
		const other = await watched(service, protocol, KEY);
		const ended = failure(watch.ended);
		const { accessKey: after } = await admin.revokeAccessKey({ name: "agent" });
		expect(after?.revokedAt).toBeDefined();
		expect(await ended).toEqual(revoked);
		expect((await postWebhook(service, key, JSON.stringify(record()))).status).toBe(401);
		expect(await failure(readClient(service, protocol, key).listConversations({}))).toEqual([
			"Unauthenticated",
			"The access key is not known",
		]);
		// A watch with another key goes on.
		expect((await postWebhook(service, KEY, JSON.stringify(record()))).status).toBe(200);
		await other.ended;
		const lines = service
			.log()
			.split("\n")
			.flatMap((line) => (line === "" ? [] : [JSON.parse(line)]));
		expect(lines.filter(({ event }) => /^access_key/.test(event))).toMatchObject([
			{ event: "access_key_created", name: "agent", scopes: ["ingest", "read"], owner: "", caller: "admin" },
			{ event: "access_key_revoked", name: "agent", caller: "admin" },
		]);
		expect(service.log()).not.toContain(key);
	},
);

test.each(PROTOCOLS)("over %s, each refusal has its code", async (protocol) => {
	await using service = await startTestService(ENV);
	const [admin, team, reader] = [ADMIN, TEAM_ADMIN, KEY].map((key) => accessKeyClient(service, protocol, key));
	if (admin === undefined || team === undefined || reader === undefined) throw new Error("there is no client");
	await admin.createAccessKey({ name: "b", owner: "team-b" });
	expect([
		await failure(reader.listAccessKeys({})),
		await failure(admin.createAccessKey({ name: "b" })),
		await failure(admin.createAccessKey({ name: "a", expiresAt: { seconds: 1n, nanos: 0 } })),
		await failure(admin.createAccessKey({ name: "a", scopes: ["metrics"], owner: "team-a" })),
		await failure(team.createAccessKey({ name: "a", scopes: ["ingest"] })),
		await failure(team.createAccessKey({ name: "a", scopes: ["read"], owner: "team-b" })),
		await failure(team.revokeAccessKey({ name: "b" })),
		await failure(team.revokeAccessKey({ name: "nobody" })),
		await failure(admin.revokeAccessKey({ name: "test" })),
	]).toEqual([
		["PermissionDenied", 'The access key or client certificate lacks the scope "keys"'],
		["AlreadyExists", 'There is an access key with the name "b"'],
		["InvalidArgument", "expires_at must be in the future"],
		["PermissionDenied", 'An access key with an owner cannot have the scope "metrics"'],
		["PermissionDenied", 'The access key or client certificate lacks the scope "ingest"'],
		["PermissionDenied", "The access key or client certificate has another owner"],
		["NotFound", "There is no such access key"],
		["NotFound", "There is no such access key"],
		["FailedPrecondition", "The access key is set in the configuration; remove it there"],
	]);
	const { accessKey } = await team.createAccessKey({ name: "a", scopes: ["read"] });
	expect(accessKey?.owner).toBe("team-a");
	expect((await team.listAccessKeys({})).accessKeys.map(({ name }) => name)).toEqual(["a", "team"]);
});

test.each(PROTOCOLS)(
	"over %s, the key is taken from three headers, two different keys are refused, and a foreign session key is ignored",
	async (protocol) => {
		await using service = await startTestService(ENV);
		const list = (headers: Record<string, string>) =>
			failure(readClient(service, protocol, undefined).listConversations({}, { headers }));
		const bearer = `Bearer ${KEY}`;
		const accepted = [undefined, ""];
		const two = ["Unauthenticated", "The request has two different access keys"];
		expect(await list({ "X-Access-Token": KEY })).toEqual(accepted);
		expect(await list({ Authorization: bearer })).toEqual(accepted);
		expect(await list({ "X-Session-API-Key": KEY })).toEqual(accepted);
		expect(await list({ "X-Access-Token": KEY, Authorization: bearer, "X-Session-API-Key": KEY })).toEqual(accepted);
		expect(await list({ "X-Access-Token": KEY, Authorization: "Basic dXNlcjpwYXNz" })).toEqual(accepted);
		expect(await list({ Authorization: "Basic dXNlcjpwYXNz" })).toEqual([
			"Unauthenticated",
			"The access key is missing",
		]);
		expect(await list({ Authorization: bearer, "X-Session-API-Key": ADMIN })).toEqual(two);
		expect(await list({ "X-Access-Token": ADMIN, Authorization: bearer })).toEqual(two);
		expect(await list({ "X-Access-Token": KEY, "X-Session-API-Key": ADMIN })).toEqual(two);
		expect(await list({ "X-Access-Token": KEY, Authorization: "Bearer unknown" })).toEqual(two);
		expect(await list({ "X-Access-Token": "unknown", "X-Session-API-Key": KEY })).toEqual(two);
		// An agent server sends its own session key with each post.
		expect(await list({ "X-Access-Token": KEY, "X-Session-API-Key": "of the agent server" })).toEqual(accepted);
		expect(await list({ Authorization: bearer, "X-Session-API-Key": "of the agent server" })).toEqual(accepted);
		const unknown = ["Unauthenticated", "The access key is not known"];
		expect(await list({ "X-Session-API-Key": "of the agent server" })).toEqual(unknown);
		expect(await list({ "X-Access-Token": "unknown", "X-Session-API-Key": "of the agent server" })).toEqual(unknown);
	},
);

test("the webhook and JSON reads take the key from three headers, refuse two different keys, and ignore a foreign session key", async () => {
	await using service = await startTestService(ENV);
	const post = async (headers: Record<string, string>) => {
		const response = await postWebhook(service, "", JSON.stringify(record()), { "X-Access-Token": null, ...headers });
		return [response.status, await response.json()];
	};
	const bearer = `bearer ${KEY}`;
	expect(await post({ Authorization: bearer })).toEqual([200, { success: true }]);
	expect(await post({ "X-Session-API-Key": KEY, Authorization: "Basic dXNlcjpwYXNz" })).toEqual([
		200,
		{ success: true },
	]);
	expect(await post({ "X-Access-Token": KEY, "X-Session-API-Key": "of the agent server" })).toEqual([
		200,
		{ success: true },
	]);
	expect(await post({ "X-Session-API-Key": ADMIN, Authorization: bearer })).toEqual([
		401,
		{ detail: "The request has two different access keys" },
	]);
	expect(await post({ Authorization: "Basic dXNlcjpwYXNz" })).toEqual([401, { detail: "The access key is missing" }]);
	const list = await fetch(`${service.http}/api/v1/conversations`, { headers: { Authorization: bearer } });
	expect(list.status).toBe(200);
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
		const results = {
			one: await status(["authorization", own]),
			equal: await status(["authorization", own], ["authorization", own]),
			equalTokens: await status(["x-access-token", KEY], ["x-access-token", KEY], ["authorization", own]),
			equalInOneField: await status(["x-access-token", `${KEY}, ${KEY}`]),
			equalSessions: await status(["x-session-api-key", KEY], ["x-session-api-key", KEY]),
			besideAnotherScheme: await status(["authorization", basic], ["authorization", own]),
			different: await status(["authorization", own], ["authorization", other]),
			swapped: await status(["authorization", other], ["authorization", own]),
			unknown: await status(["authorization", own], ["authorization", "Bearer unknown"]),
			tokens: await status(["x-access-token", KEY], ["x-access-token", ADMIN]),
			sessions: await status(["x-session-api-key", KEY], ["x-session-api-key", ADMIN]),
		};
		const { different, swapped, unknown, tokens, sessions, ...same } = results;
		expect(new Set(Object.values(same))).toEqual(new Set([accepted]));
		const two = { different, swapped, unknown, tokens, sessions };
		expect(two).toEqual({ different: refused, swapped: refused, unknown: refused, tokens: refused, sessions: refused });
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
