import { randomBytes } from "node:crypto";
import { toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { describe, expect, test } from "vitest";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import packageJson from "../../package.json" with { type: "json" };
import { ServiceProcess } from "../support/child.ts";
import { postWebhook, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { OtlpReceiver, type ReceivedSpan } from "../support/otlp-receiver.ts";
import { callRaw } from "../support/raw-rpc.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const CANARY = "canary-of-traces";

/** Returns the ids of a caller's trace, and its traceparent with the sampled flag. */
function callersTrace() {
	const [traceId, spanId] = [randomBytes(16).toString("hex"), randomBytes(8).toString("hex")];
	return { traceId, spanId, traceparent: `00-${traceId}-${spanId}-01` };
}

/** Starts a service that exports to a receiver. */
async function started(receiver: OtlpReceiver, folder: TempFolder, env: Readonly<Record<string, string>> = {}) {
	return await ServiceProcess.start(folder.file("conversations.db"), {
		OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
		OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer ${CANARY}-token`,
		OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test",
		...env,
	});
}

/** Stops the service, which exports its remaining spans. Returns all spans. */
async function spansOf(service: ServiceProcess, receiver: OtlpReceiver): Promise<readonly ReceivedSpan[]> {
	service.signal("SIGTERM");
	expect(await service.exit()).toEqual({ code: 0, signal: null });
	return receiver.spans;
}

describe("a request with a traceparent", () => {
	const message = ingestRequest(record());
	const connect = (transport: Parameters<typeof createClient>[1]) => (headers: Record<string, string>) =>
		createClient(ConversationIngestService, transport).ingestConversation(message, { headers });
	const rpc = "conversations.v1.ConversationIngestService/IngestConversation";
	const ways: Record<
		string,
		{
			name: string;
			send: (service: ServiceProcess) => (headers: Record<string, string>) => Promise<unknown>;
			attributes: Record<string, string | number>;
		}
	> = {
		webhook: {
			name: `POST ${WEBHOOK}`,
			send: (service) => (headers) => postWebhook(service, KEY, JSON.stringify(record()), headers),
			attributes: { "http.request.method": "POST", "http.route": WEBHOOK, "http.response.status_code": 200 },
		},
		Connect: {
			name: rpc,
			send: ({ http }) => connect(createConnectTransport({ baseUrl: http, httpVersion: "1.1" })),
			attributes: { "rpc.system.name": "connectrpc", "rpc.method": rpc },
		},
		"gRPC-Web": {
			name: rpc,
			send: ({ http }) => connect(createGrpcWebTransport({ baseUrl: http, httpVersion: "1.1" })),
			attributes: { "rpc.system.name": "grpc_web", "rpc.method": rpc },
		},
		gRPC: {
			name: rpc,
			send: ({ grpc }) => connect(createGrpcTransport({ baseUrl: `http://${grpc}` })),
			attributes: { "rpc.system.name": "grpc", "rpc.method": rpc },
		},
	};

	test.each(Object.keys(ways))(
		"has a span in the caller's trace, with a child span for the commit: %s",
		async (way) => {
			const { name, send, attributes } = ways[way] ?? expect.fail();
			await using receiver = await OtlpReceiver.start();
			using folder = new TempFolder();
			await using service = await started(receiver, folder);
			const { traceId, spanId, traceparent } = callersTrace();
			await send(service)({ traceparent, "X-Access-Token": KEY, "X-Request-Id": CANARY });
			const spans = await spansOf(service, receiver);
			expect(new Set(spans.map((span) => span.traceId))).toEqual(new Set([traceId]));
			const [request, ...others] = spans.toSorted((a, b) => b.kind - a.kind);
			const resource = {
				"service.name": "conversation-update-webhook-service",
				"service.version": packageJson.version,
				"deployment.environment.name": "test",
			};
			expect(request).toMatchObject({ parentId: spanId, name, kind: 2, status: 0, resource });
			expect(request?.attributes).toEqual(attributes);
			const [commit = expect.fail("no commit"), ...more] = others;
			expect(more).toEqual([]);
			expect(commit).toMatchObject({ parentId: request?.spanId, kind: 1, name: "commit", attributes: {} });
			expect(commit.end).toBeGreaterThan(commit.start);
		},
	);
});

test("the span of a refusal is not an error, its log line has the trace id, and exports show nothing that the client sent", async () => {
	await using receiver = await OtlpReceiver.start();
	using folder = new TempFolder();
	await using service = await started(receiver, folder, { OTEL_EXPORTER_OTLP_COMPRESSION: "gzip" });
	const { traceId, traceparent } = callersTrace();
	const fields = { traceparent, tracestate: `a=${CANARY}`, "User-Agent": CANARY };
	const body = JSON.stringify(record({ max_iterations: 0, title: CANARY, [CANARY]: CANARY }));
	expect((await postWebhook(service, KEY, body, fields)).status).toBe(422);
	expect((await postWebhook(service, `${CANARY}-key`, body, fields, `/${CANARY}?${CANARY}`)).status).toBe(404);
	const { method } = ConversationIngestService;
	const bytes = toBinary(IngestConversationRequestSchema, ingestRequest(record()));
	await callRaw(service, "gRPC", { ...method.ingestConversation, name: CANARY }, bytes, KEY);
	const line = await service.logged(({ kind }) => kind === "invalid_record");
	expect(line.traceId).toBe(traceId);
	const spans = await spansOf(service, receiver);
	const requests = spans.filter(({ kind }) => kind === 2);
	const seen = requests.map(({ name, status, attributes }) => [name, status, attributes["error.type"]]);
	expect(seen.toSorted()).toEqual(
		[
			[`POST ${WEBHOOK}`, 0, "invalid_record"],
			["POST", 0, "not_found"],
			["_OTHER", 0, "not_found"],
		].toSorted(),
	);
	const received = Buffer.concat(receiver.bodies).toString("latin1");
	// The tracestate is an exception: it is passed on unchanged (W3C Trace Context, section 3.3).
	expect(received.replaceAll(`a=${CANARY}`, "")).not.toContain(CANARY);
	expect(received).not.toContain(KEY);
	expect(new Set(receiver.headers.map(({ authorization }) => authorization))).toEqual(
		new Set([`Bearer ${CANARY}-token`]),
	);
	expect(service.output.stdout + service.output.stderr).not.toContain(`${CANARY}-token`);
});

test("no span is exported when the caller does not sample its trace, or with the sampler always_off", async () => {
	await using receiver = await OtlpReceiver.start();
	using folder = new TempFolder();
	await using service = await started(receiver, folder, { OTEL_METRICS_EXPORTER: "none" });
	const { traceparent } = callersTrace();
	const unrecorded = traceparent.replace(/01$/, "00");
	expect((await postWebhook(service, KEY, JSON.stringify(record()), { traceparent: unrecorded })).status).toBe(200);
	expect(await spansOf(service, receiver)).toEqual([]);
	await using other = await started(receiver, folder, {
		OTEL_TRACES_SAMPLER: "always_off",
		OTEL_METRICS_EXPORTER: "none",
	});
	expect((await postWebhook(other, KEY, JSON.stringify(record()), { traceparent })).status).toBe(200);
	expect(await spansOf(other, receiver)).toEqual([]);
	expect(receiver.headers).toEqual([]);
});

test("metrics are exported, and a receiver that fails is logged once for each outage and does not prevent a stop", async () => {
	await using receiver = await OtlpReceiver.start();
	receiver.status = 400;
	using folder = new TempFolder();
	const env = { OTEL_TRACES_EXPORTER: "none", OTEL_METRIC_EXPORT_INTERVAL: "50" };
	await using service = await started(receiver, folder, env);
	await expect.poll(() => receiver.headers.length, { timeout: 30_000 }).toBeGreaterThan(3);
	const failures = () => service.output.stdout.split("\n").filter((line) => line.includes('"export_failed"'));
	await expect.poll(failures).toHaveLength(1);
	expect(JSON.parse(failures()[0] ?? "")).toMatchObject({ level: "warn", event: "export_failed", signal: "metrics" });
	receiver.status = 200;
	await expect.poll(() => receiver.metrics.has("conversations.ready"), { timeout: 30_000 }).toBe(true);
	expect([...receiver.metrics]).toEqual(
		expect.arrayContaining(["conversations.queue.age", "conversations.newest_sequence", "process.cpu.time"]),
	);
	receiver.status = 400;
	await expect.poll(() => failures().length, { timeout: 30_000 }).toBe(2);
	expect(await spansOf(service, receiver)).toEqual([]);
});
