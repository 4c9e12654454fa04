import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
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

/** Milliseconds between two requests of a client. */
const PAUSE = 20;
/** Milliseconds after which a request counts as lost. */
const TIMEOUT = 120_000;
/** Maximum number of problems that are reported. */
const MAX_PROBLEMS = 10;

const given = z.object({
	http: z.string(),
	grpc: z.string(),
	pid: z.number(),
	key: z.string(),
	work: z.enum(["all", "reads"]),
});
const { key, work, pid, ...service } = given.parse(workerData);
if (parentPort === null) throw new Error("this is a worker");
const parent = parentPort;

const problems: string[] = [];
let slowest = { what: "none", milliseconds: 0 };
/** Processor time of the service's main thread, in milliseconds, during the probe of `/healthz` that took most of it. */
let probeWork = 0;
let count = 0;
let over = false;

/** Makes one request and records its duration and its failure. */
async function timed(what: string, request: () => Promise<unknown>): Promise<void> {
	const start = performance.now();
	try {
		await Promise.race([request(), timeout()]);
	} catch (error) {
		if (problems.length < MAX_PROBLEMS) problems.push(`${what} failed: ${String(error)}`);
	}
	count += 1;
	const milliseconds = Math.round(performance.now() - start);
	if (milliseconds > slowest.milliseconds) slowest = { what, milliseconds };
}

/** Rejects after the timeout. */
async function timeout(): Promise<never> {
	await delay(TIMEOUT, undefined, { ref: false });
	throw new Error(`no answer in ${TIMEOUT} ms`);
}

async function expectOk(response: Promise<Response>): Promise<void> {
	const { status } = await response.then(async (answer) => {
		await answer.text();
		return answer;
	});
	if (status !== 200) throw new Error(`status ${status}`);
}

/** Returns the processor time that the service's main thread has used, in milliseconds. Linux only; 0 elsewhere. */
function mainThreadTime(): number {
	if (process.platform !== "linux") return 0;
	try {
		const stat = readFileSync(`/proc/${pid}/task/${pid}/stat`, "utf8");
		// As for the whole process in test/support/child.ts; one tick is 10 ms.
		const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
		return (Number(fields[11]) + Number(fields[12])) * 10;
	} catch {
		// The service has ended, which the run reports.
		return 0;
	}
}

/** Requests the health over a new connection, as probes do, and measures the work that it waits for. */
async function probe(): Promise<void> {
	const before = mainThreadTime();
	const request = get(`${service.http}/healthz`, { agent: false });
	const [response] = await once(request, "response");
	response.resume();
	if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
	await once(response, "close");
	probeWork = Math.max(probeWork, mainThreadTime() - before);
}

const json = record({ title: "ordinary" });
const ingest = ingestClient(service, "gRPC", key);
const read = readClient(service, "gRPC", key);
const health = createClient(Health, createGrpcTransport({ baseUrl: `http://${service.grpc}` }));
const post = () => postWebhook(service, key, JSON.stringify({ ...json, title: randomUUID() }));
await Promise.race([expectOk(post()), timeout()]);

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
		await delay(PAUSE);
	}
});
parent.postMessage("started");
await once(parent, "message");
over = true;
await Promise.all(clients);
parent.postMessage({ count, slowest, probeWork, problems });
