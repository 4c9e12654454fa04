import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { promisify } from "node:util";
import type { JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { DeliveryState, EndpointState, ForwardingService } from "../../gen/conversations/v1/forwarding_service_pb.js";
import { TRACES_ENDPOINT as name } from "../../src/traces/otlp.ts";
import { clientOf, type Endpoints, postWebhook } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { OtlpReceiver, type ReceivedSpan } from "../support/otlp-receiver.ts";
import { KEY, startTestService, testEnvironment } from "../support/service.ts";
import { ROOT } from "../support/start-command.ts";

const WAIT = { timeout: 60_000 };
const envOf = ({ url }: OtlpReceiver) => ({
	ACCESS_KEYS: `test:${KEY}:ingest+read+forward+erase+score`,
	TRACES_OTLP_ENDPOINT: `${url}/v1/traces`,
	TRACES_DELAY_SECONDS: "1",
});
const operation = ({ attributes }: ReceivedSpan) => attributes["gen_ai.operation.name"];
const idsOf = ({ spans }: OtlpReceiver) => spans.map(({ spanId }) => spanId);

/** Posts the events of a run of a conversation in one batch. */
async function postRun(service: Endpoints, id: string, n: number, word: string): Promise<void> {
	const event = (second: number, kind: string, more: object) => ({
		...{ id: `${word} ${n} ${second}`, timestamp: `2026-03-01T10:${String(n).padStart(2, "0")}:0${second}` },
		...{ source: "agent", kind, ...more },
	});
	const state = (second: number, value: string) =>
		event(second, "ConversationStateUpdateEvent", { key: "execution_status", value });
	const content = [{ type: "text", text: `${word} https://u:sk-canary@h/` }];
	const events = [
		event(1, "MessageEvent", { source: "user", llm_message: { role: "user", content } }),
		state(2, "running"),
		event(3, "MessageEvent", { llm_message: { role: "assistant", content }, llm_response_id: `${word} ${n}` }),
		// So that the run changes the record although its status is what it was.
		event(4, "ConversationStateUpdateEvent", { key: "tags", value: { run: String(n) } }),
		state(5, "finished"),
	];
	const answer = await postEvents(service, KEY, id, JSON.stringify(events));
	expect([answer.status, await answer.text()]).toEqual([200, '{"success":true}']);
}

async function start(service: Endpoints, more: JsonObject = {}): Promise<string> {
	const id = randomUUID();
	const agent = { kind: "Agent", llm: { model: "openai/m" } };
	const times = { created_at: "2026-03-01T10:00:00Z", updated_at: "2026-03-01T10:00:00Z" };
	const body = record({ id, agent, ...times, ...more });
	expect((await postWebhook(service, KEY, JSON.stringify(body))).status).toBe(200);
	return id;
}

test.each(ENGINES)(
	"with $engine, each run is sent once, also after a restart, and never after an erasure",
	async (one) => {
		await using databases = await one.open();
		await using receiver = await OtlpReceiver.start();
		const env = { ...envOf(receiver), ...(await databases.create()), TRACES_OTLP_HEADERS: "X-Key=a%20b" };
		await using service = await startTestService(env);
		const id = await start(service);
		await postRun(service, id, 1, "first");
		await expect.poll(() => receiver.spans.length, WAIT).toBe(2);
		// The second run begins and ends in one post.
		await postRun(service, id, 2, "second");
		await expect.poll(() => receiver.spans.length, WAIT).toBe(4);
		expect(new Set(idsOf(receiver)).size).toBe(4);
		expect(receiver.headers[0]).toMatchObject({ "x-key": "a b", "content-type": "application/x-protobuf" });
		const [run, chat] = receiver.spans;
		const nanos = (second: number) => BigInt(Date.parse(`2026-03-01T10:01:0${second}Z`)) * 1_000_000n;
		expect(run).toEqual({
			...{ traceId: chat?.traceId, spanId: chat?.parentId, parentId: "", name: "invoke_agent Agent", kind: 1 },
			...{ start: nanos(1), end: nanos(5), status: 0, message: "", events: [] },
			attributes: {
				...{ "gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": id, "gen_ai.agent.name": "Agent" },
				...{ "gen_ai.request.model": "openai/m", "gen_ai.provider.name": "openai", "conversations.status": "finished" },
			},
			resource: { "service.name": "conversation-update-webhook-service", "service.version": expect.any(String) },
		});
		expect(chat).toMatchObject({
			...{ name: "chat openai/m", kind: 3, start: nanos(2), end: nanos(3) },
			attributes: {
				...{ "gen_ai.response.id": "first 1", "gen_ai.response.finish_reasons": ["stop"] },
				"conversations.start_estimated": true,
			},
		});
		expect(Buffer.concat(receiver.bodies).toString("latin1")).not.toMatch(/canary|https/);

		// The receiver is away, and one of two conversations is erased meanwhile.
		receiver.status = 503;
		const [kept, erased] = [await start(service), await start(service)];
		await postRun(service, erased, 3, "erased");
		await postRun(service, kept, 3, "kept");
		const forwarding = clientOf(ForwardingService, service, "connect", KEY);
		const failed = async () =>
			(await forwarding.listDeliveries({ name })).deliveries.filter(({ tries }) => tries.at(-1)?.status === 503).length;
		await expect.poll(failed, WAIT).toBeGreaterThan(1);
		await clientOf(ConversationEraseService, service, "connect", KEY).deleteConversation({ id: erased });
		await service.stop();
		receiver.status = 200;
		await using again = await startTestService(env);
		const ofKept = () => receiver.spans.filter(({ attributes }) => attributes["gen_ai.conversation.id"] === kept);
		await expect.poll(() => ofKept().length, WAIT).toBe(2);
		const later = clientOf(ForwardingService, again, "connect", KEY);
		const open = async () => (await later.listDeliveries({ name, state: DeliveryState.WAITING })).deliveries;
		await expect.poll(open, WAIT).toEqual([]);
		const lost = await later.listDeliveries({ name, state: DeliveryState.LOST });
		expect(lost.deliveries.length).toBeGreaterThan(0);
		expect(new Set(receiver.spans.map(({ attributes }) => attributes["gen_ai.conversation.id"]))).toEqual(
			new Set([id, kept]),
		);
		// A replay, too, has nothing of it.
		const before = receiver.spans.length;
		await later.replayEndpoint({ name, from: 1n, to: 1000n });
		await expect.poll(() => receiver.spans.length, WAIT).toBeGreaterThan(before);
		await expect.poll(open, WAIT).toEqual([]);
		expect(new Set(idsOf(receiver)).size).toBe(6);
	},
);

test("with content, texts are sent and their secrets are not; the command sends all of it again", async () => {
	await using receiver = await OtlpReceiver.start();
	await using service = await startTestService({ ...envOf(receiver), TRACES_CONTENT: "on" });
	const id = await start(service);
	await postRun(service, id, 1, "spoken");
	await expect.poll(() => receiver.spans.length, WAIT).toBe(2);
	const [, chat] = receiver.spans;
	const content = expect.stringMatching(/^spoken https:\/\/\*+@h\/$/);
	expect(JSON.parse(String(chat?.attributes["gen_ai.input.messages"]))).toEqual([
		{ role: "user", parts: [{ type: "text", content }] },
	]);
	expect(JSON.parse(String(chat?.attributes["gen_ai.output.messages"]))).toEqual([
		{ role: "assistant", parts: [{ type: "text", content }], finish_reason: "stop" },
	]);
	expect(Buffer.concat(receiver.bodies).toString("latin1")).not.toContain("sk-canary");
	const run = (...args: string[]) =>
		promisify(execFile)(process.execPath, ["dist/main.js", "traces", ...args], {
			...{ cwd: ROOT, env: testEnvironment(service.database) },
		});
	expect((await run("--from", "1", "--to", "9")).stdout).toMatch(/^\d deliveries are sent again\.\n$/);
	await expect.poll(() => receiver.spans.length, WAIT).toBe(4);
	expect(receiver.spans.slice(2)).toEqual(receiver.spans.slice(0, 2));
	const forwarding = clientOf(ForwardingService, service, "connect", KEY);
	const waiting = async () => (await forwarding.listDeliveries({ name, state: DeliveryState.WAITING })).deliveries;
	// One that is under way reads the scores.
	await expect.poll(waiting, WAIT).toEqual([]);

	// Scores that were given meanwhile are sent, too, and their comments only with content.
	const response = await fetch(`${service.http}/api/v1/scores`, {
		method: "POST",
		headers: { "X-Access-Token": KEY, "Content-Type": "application/json" },
		body: JSON.stringify({
			scores: [
				{ conversation_id: id, name: "thumbs", value: true, comment: "see https://u:sk-canary@h/", source: "person" },
				{ conversation_id: id, event_id: "spoken 1 3", name: "helps", value: 0.5 },
			],
		}),
	});
	expect(await response.json()).toEqual({ changed: 2 });
	await run("--from", "1", "--to", "9");
	await expect.poll(() => receiver.spans.length, WAIT).toBe(6);
	const evaluation = (attributes: object) => {
		const giver = { "conversations.score.giver": "test" };
		return [{ name: "gen_ai.evaluation.result", time: expect.any(BigInt), attributes: { ...giver, ...attributes } }];
	};
	expect(receiver.spans.slice(4).map(({ events }) => events)).toEqual([
		evaluation({
			...{ "gen_ai.evaluation.name": "thumbs", "gen_ai.evaluation.score.value": 1 },
			"gen_ai.evaluation.score.label": "true",
			"gen_ai.evaluation.explanation": "see https://**********@h/",
		}),
		evaluation({
			...{ "gen_ai.evaluation.name": "helps", "gen_ai.evaluation.score.value": 0.5 },
			"gen_ai.response.id": "spoken 1",
		}),
	]);
	await service.stop();
	await using without = await startTestService({
		...{ ...envOf(receiver), DATABASE_URL: `sqlite:${service.database}`, TRACES_CONTENT: "off" },
	});
	await clientOf(ForwardingService, without, "connect", KEY).replayEndpoint({ name, from: 1n, to: 9n });
	await expect.poll(() => receiver.spans.length, WAIT).toBe(8);
	expect(receiver.spans[6]?.events).toMatchObject([{ attributes: { "gen_ai.evaluation.name": "thumbs" } }]);
	expect(receiver.spans[6]?.events[0]?.attributes).not.toHaveProperty(["gen_ai.evaluation.explanation"]);
	await expect(run("--from", "1")).rejects.toMatchObject({ code: 2 });
	await expect(run("--from", "now", "--to", "9")).rejects.toMatchObject({ code: 2 });
});

test("a sub-agent is below the call that began it, and what has not arrived is marked", async () => {
	await using receiver = await OtlpReceiver.start();
	await using service = await startTestService(envOf(receiver));
	// The record says that it has finished, but no event does, and an event is missing.
	const parent = await start(service, { execution_status: "finished" });
	const event = (id: string, parent_id: string | null, kind: string, more: object) => ({
		...{ id, parent_id, timestamp: "2026-03-01T10:01:00", source: "agent", kind, ...more },
	});
	const events = [
		event("task", null, "ActionEvent", { tool_name: "task", tool_call_id: "c1", llm_response_id: "r1" }),
		event("after", "missing", "MessageEvent", { llm_message: { role: "assistant" }, llm_response_id: "r2" }),
	];
	expect((await postEvents(service, KEY, parent, JSON.stringify(events))).status).toBe(200);
	const child = await start(service, { parent_conversation_id: parent });
	await postRun(service, child, 2, "child");
	await expect.poll(() => receiver.spans.length, WAIT).toBe(6);
	const spanOf = (id: string, kind: string) =>
		receiver.spans.find((span) => span.attributes["gen_ai.conversation.id"] === id && operation(span) === kind);
	const [run, call] = [spanOf(parent, "invoke_agent"), spanOf(parent, "execute_tool")];
	expect(run?.attributes).toMatchObject({ "conversations.end_missing": true, "conversations.gaps": 1 });
	expect(call?.attributes).toMatchObject({ "gen_ai.tool.call.id": "c1", "conversations.result_missing": true });
	expect(spanOf(child, "invoke_agent")).toMatchObject({ traceId: run?.traceId, parentId: call?.spanId });
	const deliveries = await clientOf(ForwardingService, service, "connect", KEY).listDeliveries({ name });
	expect(
		deliveries.deliveries.flatMap(({ tries }) => tries.map(({ status, error }) => [status, error])),
	).toContainEqual([425, "the end of the run has not arrived yet"]);
});

test("the endpoint is shown and can be paused, but only the configuration says what it is; without it, it is removed", async () => {
	await using receiver = await OtlpReceiver.start();
	await using service = await startTestService(envOf(receiver));
	const forwarding = clientOf(ForwardingService, service, "connect", KEY);
	expect((await forwarding.listEndpoints({})).endpoints).toMatchObject([
		{ name, owner: "", form: "otlp", url: `${receiver.url}/v1/traces`, state: EndpointState.ACTIVE },
	]);
	const shown = await fetch(`${service.http}/api/v1/endpoints/${name}`, { headers: { "X-Access-Token": KEY } });
	expect([shown.status, JSON.parse(await shown.text())]).toMatchObject([200, { endpoint: { name, state: "active" } }]);
	const refusals = [
		forwarding.updateEndpoint({ name, form: "plain" }),
		forwarding.deleteEndpoint({ name }),
		forwarding.rotateEndpointSecret({ name }),
		forwarding.testEndpoint({ name }),
	];
	for (const answer of await Promise.allSettled(refusals))
		expect(answer.status === "rejected" && ConnectError.from(answer.reason).code).toBe(Code.FailedPrecondition);
	expect((await forwarding.pauseEndpoint({ name })).endpoint?.state).toBe(EndpointState.PAUSED);
	expect((await forwarding.resumeEndpoint({ name })).endpoint?.state).toBe(EndpointState.ACTIVE);
	const database = { DATABASE_URL: `sqlite:${service.database}`, ACCESS_KEYS: envOf(receiver).ACCESS_KEYS };
	await service.stop();
	await using without = await startTestService(database);
	expect((await clientOf(ForwardingService, without, "connect", KEY).listEndpoints({})).endpoints).toEqual([]);
});
