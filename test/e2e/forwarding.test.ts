import { randomBytes, randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { DeliveryState, EndpointState, ForwardingService } from "../../gen/conversations/v1/forwarding_service_pb.js";
import { Receiver } from "../forward/receiver.ts";
import { clientOf, postWebhook } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService } from "../support/service.ts";

const [RED, BLUE] = ["key-of-the-red-agents", "key-of-the-blue-agents"];
const ENV = {
	ACCESS_KEYS: `test:${KEY}:ingest+read+forward+erase,red:${RED}:ingest+forward@red,blue:${BLUE}:ingest+forward@blue`,
	ENCRYPTION_KEY: randomBytes(32).toString("base64"),
	FORWARD_PRIVATE: "on",
};

/** Posts a conversation in a status. `title` tells it from others. */
async function post(service: { readonly http: string; readonly grpc: string }, key: string, values: object) {
	const answer = await postWebhook(service, key, JSON.stringify(record({ ...values })));
	expect(answer.status).toBe(200);
}

test.each(ENGINES)(
	"with $engine, an endpoint gets what it wants, signed, and an erasure clears it",
	async ({ open }) => {
		await using databases = await open();
		await using receiver = await Receiver.start();
		await using service = await startTestService({ ...ENV, ...(await databases.create()) });
		const forwarding = clientOf(ForwardingService, service, "connect", KEY);
		const { secret, endpoint } = await forwarding.createEndpoint({
			...{ name: "hook", url: receiver.url, changes: ["STARTED", "FINISHED"], include: ["record"] },
			filter: { tags: { team: "a" } },
		});
		expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
		expect(endpoint).toMatchObject({ name: "hook", owner: "", form: "plain", state: EndpointState.ACTIVE, lost: 0n });
		const [id, other] = [randomUUID(), randomUUID()];
		const mine = { id, title: "mine", tags: { team: "a" }, created_at: "2026-01-01T00:00:00Z" };
		await post(service, KEY, { ...mine, execution_status: "running", updated_at: "2026-01-01T00:00:01Z" });
		await post(service, KEY, { id: other, title: "not mine", execution_status: "finished" });
		await post(service, KEY, { ...mine, execution_status: "finished", updated_at: "2026-01-01T00:00:02Z" });
		const received = await receiver.count(2);
		const bodies = received.map(({ headers, body }) => new Webhook(secret).verify(body, headers));
		expect(bodies).toMatchObject([
			{
				type: "conversation.started",
				data: { change: "started", conversation_id: id, sequence: 1, summary: { title: "mine" }, record: { id } },
			},
			{ type: "conversation.finished", data: { sequence: 3, current: true, sender: "test", origin: "posted" } },
		]);
		expect(received[0]?.headers["webhook-id"]).toMatch(/^[0-9a-f]{18}_1$/);
		await expect
			.poll(async () => (await forwarding.listDeliveries({ name: "hook", state: DeliveryState.DELIVERED })).deliveries)
			.toMatchObject([
				{ change: "FINISHED", conversationId: id, sequence: 3n, tries: [{ status: 200, error: "", answer: "ok" }] },
				{ change: "STARTED", conversationId: id, sequence: 1n },
			]);
		await clientOf(ConversationEraseService, service, "connect", KEY).deleteConversation({ id });
		const { deliveries } = await forwarding.listDeliveries({ name: "hook" });
		expect(deliveries).toMatchObject([
			{ conversationId: "", tries: [{ answer: "" }] },
			{ conversationId: "", tries: [{ answer: "" }] },
		]);
		expect(service.log()).not.toContain(secret);
	},
);

test("scores are told as soon as they change, to endpoints of the conversation's owner", async () => {
	await using receiver = await Receiver.start();
	await using service = await startTestService({
		...ENV,
		ACCESS_KEYS: `test:${KEY}:ingest+forward,red:${RED}:ingest+forward+score@red,blue:${BLUE}:ingest+forward+score@blue`,
	});
	const secrets = new Map<string, string>();
	for (const key of [KEY, RED, BLUE]) {
		const asked = { name: "hook", url: `${receiver.url}?${key}`, changes: ["SCORED"] };
		const { secret } = await clientOf(ForwardingService, service, "connect", key).createEndpoint(asked);
		secrets.set(key, secret);
	}
	const id = randomUUID();
	await post(service, RED, { id, title: "of red" });
	const names = Array.from({ length: 200 }, (_, n) => `name${n % 100}`);
	const scores = names.map((name, n) => ({ conversation_id: id, name, value: n, comment: "canary" }));
	const call = async (key: string, method: string, path: string, body: object) =>
		await fetch(`${service.http}/api/v1/${path}`, {
			method,
			headers: { "X-Access-Token": key, "Content-Type": "application/json" },
			body: JSON.stringify(body),
		});
	expect((await call(BLUE, "POST", "scores", { scores })).status).toBe(404);
	expect((await call(RED, "POST", "scores", { scores })).status).toBe(200);
	await receiver.count(2);
	expect((await call(RED, "DELETE", `conversations/${id}/scores/name7`, {})).status).toBe(200);
	const received = await receiver.count(4);
	for (const key of [KEY, RED]) {
		const own = received.filter(({ headers, body }) => {
			try {
				return new Webhook(secrets.get(key) ?? "").verify(body, headers) !== undefined;
			} catch {
				return false;
			}
		});
		expect(own.map(({ body }) => JSON.parse(body))).toMatchObject([
			{
				type: "conversation.scored",
				data: {
					...{ change: "scored", conversation_id: id, text: "was scored" },
					...{ summary: { title: "of red", owner: "red" }, scores: { length: 200, 0: { name: "name0", value: 0 } } },
				},
			},
			{
				type: "conversation.scored",
				data: {
					text: "lost a score",
					scores: [{ event_id: null, name: "name7", value: null, giver: "red" }],
				},
			},
		]);
	}
	expect(JSON.stringify(received)).not.toContain("canary");
});

test("over gRPC, each owner manages its own endpoints, and settings that break rules are refused", async () => {
	await using receiver = await Receiver.start();
	await using service = await startTestService(ENV);
	const of = (key: string) => clientOf(ForwardingService, service, "gRPC", key);
	const [admin, red, blue] = [of(KEY), of(RED), of(BLUE)];
	const asked = { name: "hook", url: receiver.url, changes: ["STARTED"] };
	expect((await red.createEndpoint(asked)).endpoint?.owner).toBe("red");
	await blue.createEndpoint(asked);
	await expect(red.createEndpoint(asked)).rejects.toThrow("There is an endpoint with the name hook");
	await expect(red.getEndpoint({ name: "hook", owner: "blue" })).rejects.toThrow("There is no such endpoint");
	await expect(admin.getEndpoint({ name: "hook" })).rejects.toThrow("There is no such endpoint");
	await post(service, RED, { id: randomUUID(), title: "of red" });
	const delivered = { name: "hook", state: DeliveryState.DELIVERED };
	await expect.poll(async () => (await red.listDeliveries(delivered)).deliveries.length).toBe(1);
	expect((await blue.listDeliveries({ name: "hook" })).deliveries).toEqual([]);
	expect(receiver.received.map(({ body }) => JSON.parse(body).data.summary.title)).toEqual(["of red"]);
	const owners = async (by: typeof red) => (await by.listEndpoints({})).endpoints.map(({ owner }) => owner);
	expect([await owners(red), await owners(admin)]).toEqual([["red"], ["blue", "red"]]);
	await red.deleteEndpoint({ name: "hook" });
	expect(await owners(admin)).toEqual(["blue"]);
	const refusals = [
		{ name: "a b" },
		{ url: "ftp://x" },
		{ url: "http://user:pass@x" },
		{ changes: ["NOTHING"] },
		{ form: "other" },
		{ include: ["secrets"] },
	].map((change) => admin.createEndpoint({ ...asked, ...change }).then(() => 0, codeOf));
	expect(await Promise.all(refusals)).toEqual(refusals.map(() => Code.InvalidArgument));
	await using keyless = await startTestService({ ACCESS_KEYS: `test:${KEY}:forward,reader:${RED}:read` });
	const outside = { ...asked, url: "https://example.com" };
	expect([
		await clientOf(ForwardingService, keyless, "gRPC", KEY)
			.createEndpoint(outside)
			.then(() => 0, codeOf),
		await clientOf(ForwardingService, keyless, "gRPC", RED)
			.listEndpoints({})
			.then(() => 0, codeOf),
	]).toEqual([Code.FailedPrecondition, Code.PermissionDenied]);
});

/** Members of the answers that the test reads. */
interface Answer {
	readonly secret?: string;
	readonly deliveries?: readonly { readonly id: string }[];
}

test("endpoints are managed by paths with JSON", async () => {
	await using receiver = await Receiver.start();
	await using service = await startTestService(ENV);
	const call = async (method: string, path: string, body?: object) => {
		const headers = { "X-Access-Token": KEY, "Content-Type": "application/json" };
		const url = `${service.http}/api/v1/endpoints${path}`;
		const answer = await fetch(url, { method, headers, ...(body && { body: JSON.stringify(body) }) });
		const json: Answer = JSON.parse(await answer.text());
		return [answer.status, json] as const;
	};
	const asked = { name: "hook", url: receiver.url, changes: ["STARTED"], filter: { execution_statuses: ["idle"] } };
	const [status, created] = await call("POST", "", asked);
	expect([status, created]).toMatchObject([200, { endpoint: { name: "hook", state: "active", position: 0 } }]);
	expect(created.secret).toMatch(/^whsec_/);
	expect((await call("POST", "", asked))[0]).toBe(409);
	expect((await call("POST", "", { ...asked, name: "" }))[1]).toEqual({
		detail: "name must be 1 to 64 letters, digits, dots, dashes or underscores",
	});
	expect((await call("GET", "/other"))[0]).toBe(404);
	await post(service, KEY, { id: randomUUID(), title: "a", execution_status: "idle" });
	await receiver.count(1);
	await expect.poll(async () => (await call("GET", "/hook/deliveries?state=delivered"))[1].deliveries?.length).toBe(1);
	const [, { deliveries }] = await call("GET", "/hook/deliveries");
	const [first] = deliveries ?? [];
	expect(deliveries).toMatchObject([{ change: "STARTED", sequence: 1, state: "delivered", tries: [{ status: 200 }] }]);
	expect(await call("PATCH", "/hook", { form: "cloudevents" })).toMatchObject([
		200,
		{ endpoint: { form: "cloudevents" } },
	]);
	expect(await call("POST", "/hook:rotate-secret", {})).toMatchObject([
		200,
		{ secret: expect.stringMatching(/^whsec_/) },
	]);
	expect(await call("POST", "/hook:replay", { from: 1, to: 9 })).toEqual([200, { deliveries: 1 }]);
	const [, again] = await receiver.count(2);
	expect(again?.headers["content-type"]).toBe("application/cloudevents+json; charset=utf-8");
	expect(JSON.parse(again?.body ?? "")).toMatchObject({
		...{ specversion: "1.0", id: first?.id, type: "conversation.started", data: { sequence: 1 } },
	});
	expect(await call("POST", `/hook/deliveries/${first?.id}:retry`, {})).toMatchObject([
		200,
		{ delivery: { state: "waiting" } },
	]);
	await receiver.count(3);
	expect(await call("POST", "/hook:pause", {})).toMatchObject([200, { endpoint: { state: "paused" } }]);
	expect(await call("POST", "/hook:test", {})).toMatchObject([200, { success: true }]);
	expect(await call("POST", "/hook:resume", { from: "now" })).toMatchObject([200, { endpoint: { state: "active" } }]);
	expect(await call("DELETE", "/hook")).toEqual([200, {}]);
	expect((await call("GET", ""))[1]).toEqual({ endpoints: [] });
	await using keyless = await startTestService({ ACCESS_KEYS: ENV.ACCESS_KEYS });
	// An address inside is refused when it is written, here without FORWARD_PRIVATE.
	const inside = await fetch(`${keyless.http}/api/v1/endpoints`, {
		...{ method: "POST", headers: { "X-Access-Token": KEY, "Content-Type": "application/json" } },
		body: JSON.stringify(asked),
	});
	const rule = "the address is private, loopback or link-local (FORWARD_PRIVATE=on allows it)";
	expect([inside.status, await inside.json()]).toEqual([400, { detail: `url must be outside: ${rule}` }]);
});

test("an endpoint that the list no longer allows is refused with 403, and its deliveries fail with the reason", async () => {
	const env = { ...ENV, FORWARD_NATS: "127.0.0.1:1" };
	await using before = await startTestService({ ...env, FORWARD_NATS_SUBJECTS: "red.a@red" });
	const forwarding = clientOf(ForwardingService, before, "connect", RED);
	await forwarding.createEndpoint({ name: "hook", url: "nats:red.a", changes: ["STARTED"] });
	await using service = await before.restart({ FORWARD_NATS_SUBJECTS: "red.b@red" });
	const call = async (method: string, path: string, body: object) => {
		const headers = { "X-Access-Token": RED, "Content-Type": "application/json" };
		const url = `${service.http}/api/v1/endpoints${path}`;
		const answer = await fetch(url, { method, headers, body: JSON.stringify(body) });
		return [answer.status, await answer.json()];
	};
	const reason = "FORWARD_NATS_SUBJECTS has no entry for the subject red.a and the owner red";
	const refused = [403, { detail: `url is not allowed: ${reason}` }];
	expect(await call("POST", "", { name: "other", url: "nats:red.a", changes: ["STARTED"] })).toEqual(refused);
	expect(await call("PATCH", "/hook", { form: "cloudevents" })).toEqual(refused);
	expect(await call("POST", "/hook:test", {})).toMatchObject([200, { success: false, try: { error: reason } }]);
	await post(service, RED, { id: randomUUID(), title: "a", execution_status: "running" });
	const client = clientOf(ForwardingService, service, "connect", RED);
	await expect
		.poll(async () => {
			const { deliveries } = await client.listDeliveries({ name: "hook", state: DeliveryState.WAITING });
			return deliveries.flatMap(({ tries }) => tries.map(({ error }) => error));
		})
		.toEqual([reason]);
	expect(await call("PATCH", "/hook", { url: "nats:red.b" })).toMatchObject([200, { endpoint: { url: "nats:red.b" } }]);
});

/** Returns the code of a refusal. */
function codeOf(error: unknown): Code {
	return ConnectError.from(error).code;
}
