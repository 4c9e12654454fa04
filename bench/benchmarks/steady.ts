import { join } from "node:path";
import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, ratioFigure, round } from "../figures.ts";
import { CONVERSATIONS, type Measurement, ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { peakResidentBytes } from "../processes/usage.ts";
import { type BodyName, eventsRequest, growingRequests, webhookRequest } from "../requests.ts";
import type { Settings } from "../settings.ts";
import { prepare } from "./ingest.ts";
import { listening } from "./parts.ts";

/** A load in steady state. */
interface Case {
	readonly name: string;
	readonly connections: number;
	readonly conversations: number;
	readonly body: BodyName | "growing" | "events";
}

/** `growing` are conversations whose record lists one more call of a model each time; `events` are five in a batch. */
const CASES: readonly Case[] = [
	{ name: "one", connections: 8, conversations: 1, body: "small" },
	{ name: "one64", connections: 64, conversations: 1, body: "small" },
	{ name: "many", connections: 8, conversations: CONVERSATIONS, body: "small" },
	{ name: "many64", connections: 64, conversations: CONVERSATIONS, body: "small" },
	{ name: "growing", connections: 8, conversations: 200, body: "growing" },
	{ name: "large", connections: 8, conversations: 200, body: "large" },
	{ name: "events", connections: 8, conversations: CONVERSATIONS, body: "events" },
];

/** Least milliseconds of a measurement: work that follows a post later would otherwise not be seen. */
const LEAST = 10_000;
const WARM_UP = 4_000;

/** Ingest in steady state: a long load, and the processor time until the service is idle again. One benchmark for each case. */
export const steady: readonly Benchmark[] = CASES.map((one) => ({
	name: `steady-${one.name}`,
	about: `webhook, ${one.body}, ${one.connections} connections, ${one.conversations} conversations, durable, until idle, against node:http with ${one.body === "events" ? "one insert and without checks" : "the same intake and one insert"}`,
	comparable: true,
	run: async (settings, report) => await measure(one, settings, report),
}));

async function measure(one: Case, settings: Settings, report: (line: string) => void): Promise<Figure[]> {
	const { against, profile } = settings;
	await using folder = await DiskFolder.create(settings.folder);
	await using otherFolder = await DiskFolder.create(settings.folder);
	await using service = await Service.start({ database: folder.database, profile });
	await using client = await Child.start("load/http.ts", z.unknown());
	const subject = await targetOf(one, service, client);
	const compared = async (name: string, pid: number, reference: ServerTarget): Promise<Figure[]> => {
		const pairs = await inTurn(one, settings, reference, subject, report);
		const ratioOf = (figure: (measurement: Measurement) => number) =>
			pairs.map(([before, after]) => figure(after) / figure(before));
		const note = `${described(pairs.map(([, after]) => after))} against ${described(pairs.map(([before]) => before))}`;
		const [own, others] = await Promise.all([service.pid, pid].map(peakResidentBytes));
		const memory = `against ${round((others ?? Number.NaN) / 2 ** 20)} MiB`;
		return [
			ratioFigure(
				`steady-${one.name}: rate, against ${name}`,
				ratioOf(({ rate }) => rate),
				undefined,
				note,
			),
			ratioFigure(
				`steady-${one.name}: processor time`,
				ratioOf(({ cost }) => cost),
				undefined,
				"",
			),
			{ name: `steady-${one.name}: peak memory`, value: (own ?? Number.NaN) / 2 ** 20, unit: "MiB", note: memory },
		];
	};
	if (against !== undefined) {
		await prepare(against);
		await using other = await Service.start({ database: otherFolder.database, root: against });
		return await compared(against, other.pid, await targetOf(one, other, client));
	}
	const program = one.body === "events" ? "yardsticks/http-durable.ts" : "yardsticks/http-ingest.ts";
	await using bare = await Child.start(program, listening, [join(otherFolder.path, "log.db")]);
	const { pid, ready } = bare;
	return await compared("yardstick", pid, await targetOf(one, { pid, httpPort: ready.port, key: service.key }, client));
}

/** Returns a server under the load of a case. For events, the records of their conversations are posted first. */
async function targetOf(
	{ body, connections, conversations }: Case,
	{ pid, httpPort: port, key }: Pick<Service, "pid" | "httpPort" | "key">,
	client: Child<unknown>,
): Promise<ServerTarget> {
	const load = { name: "service", pid, port, conversations };
	if (body === "events") {
		const records = new ServerTarget(client, { ...load, template: await webhookRequest("small", key) });
		await records.load({ concurrency: connections, milliseconds: 60_000, requests: conversations });
		return new ServerTarget(client, { ...load, template: await eventsRequest("usual", key) });
	}
	if (body !== "growing") return new ServerTarget(client, { ...load, template: await webhookRequest(body, key) });
	const [template, steps] = [await webhookRequest("small", key), await growingRequests(key)];
	return new ServerTarget(client, { ...load, template, steps });
}

async function inTurn(
	{ connections: concurrency }: Case,
	settings: Settings,
	reference: ServerTarget,
	subject: ServerTarget,
	report: (line: string) => void,
): Promise<[Measurement, Measurement][]> {
	const milliseconds = Math.max(settings.milliseconds, LEAST);
	for (const target of [reference, subject]) await target.load({ concurrency, milliseconds: WARM_UP, untilIdle: true });
	const pairs: [Measurement, Measurement][] = [];
	for (let round = 1; round <= settings.rounds; round++) {
		const before = await reference.load({ concurrency, milliseconds, untilIdle: true });
		const after = await subject.load({ concurrency, milliseconds, untilIdle: true });
		report(`  ${round}/${settings.rounds} ${described([before])} | ${described([after])}`);
		pairs.push([before, after]);
	}
	return pairs;
}

/** Returns the medians of measurements as text. */
function described(measurements: readonly Measurement[]): string {
	const of = (figure: (measurement: Measurement) => number) => round(median(measurements.map(figure)));
	const [rate, cost] = [of((one) => one.rate), of((one) => one.cost * 1000)];
	const [middle, slow] = [of((one) => one.latency[0]), of((one) => one.latency[1])];
	const written = of((one) => (one.written ?? Number.NaN) / 1024);
	const idle = of((one) => one.idleAfter ?? Number.NaN);
	return `${rate}/s (${cost} µs of processor time, median ${middle} ms, p99 ${slow} ms, ${written} KiB written, idle after ${idle} s)`;
}
