import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { get } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { z } from "zod";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { getText, ingestClient, postWebhook, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";

/** Milliseconds that a client rests between two requests. */
const REST = 20;
/** How long a client waits for an answer, in milliseconds: as long as the real sender. */
const PATIENCE = 30_000;
/** Problems that are told. */
const MOST_TOLD = 10;

const given = z.object({ http: z.string(), grpc: z.string(), key: z.string(), work: z.enum(["all", "reads"]) });
const { key, work, ...service } = given.parse(workerData);
if (parentPort === null) throw new Error("this is a worker");
const parent = parentPort;

const problems: string[] = [];
let slowest = { what: "none", milliseconds: 0 };
let count = 0;
let over = false;

/** Makes one request, and keeps how long it took and what went wrong. */
async function timed(what: string, request: () => Promise<unknown>): Promise<void> {
	const start = performance.now();
	try {
		await Promise.race([request(), tooLate()]);
	} catch (error) {
		if (problems.length < MOST_TOLD) problems.push(`${what} failed: ${String(error)}`);
	}
	count += 1;
	const milliseconds = Math.round(performance.now() - start);
	if (milliseconds > slowest.milliseconds) slowest = { what, milliseconds };
}

/** Fails after a time that nobody waits for an answer. */
async function tooLate(): Promise<never> {
	await delay(PATIENCE, undefined, { ref: false });
	throw new Error(`no answer in ${PATIENCE} ms`);
}

async function expectOk(response: Promise<Response>): Promise<void> {
	const { status } = await response.then(async (answer) => {
		await answer.text();
		return answer;
	});
	if (status !== 200) throw new Error(`status ${status}`);
}

/** Asks for the health on a connection of its own, as probes do. */
async function probe(): Promise<void> {
	const request = get(`${service.http}/healthz`, { agent: false });
	const [response] = await once(request, "response");
	response.resume();
	if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
	await once(response, "close");
}

const json = record({ title: "ordinary" });
const ingest = ingestClient(service, "gRPC", key);
const read = readClient(service, "gRPC", key);
const health = createClient(Health, createGrpcTransport({ baseUrl: `http://${service.grpc}` }));
const post = () => postWebhook(service, key, JSON.stringify({ ...json, title: randomUUID() }));
await Promise.race([expectOk(post()), tooLate()]);

const reads: readonly (readonly [what: string, request: () => Promise<unknown>])[] = [
	["GET of a record", () => getText(service, key, json.id)],
	["GetConversation", () => read.getConversation({ id: String(json.id) })],
	["a probe of /healthz", probe],
	["health over gRPC", () => health.check({})],
];
const writes: typeof reads = [
	["a post to the webhook", () => expectOk(post())],
	["IngestConversation", () => ingest.ingestConversation(ingestRequest({ ...json, title: randomUUID() }))],
];

const clients = (work === "all" ? [...writes, ...reads] : reads).map(async ([what, request]) => {
	for (let first = true; first || !over; first = false) {
		await timed(what, request);
		await delay(REST);
	}
});
parent.postMessage("started");
await once(parent, "message");
over = true;
await Promise.all(clients);
parent.postMessage({ count, slowest, problems });
