import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, type Target as Goal, median, ratioFigure, round } from "../figures.ts";
import { type Measurement, measurePairs, ServerTarget, type ServerUnderLoad } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { peakResidentBytes } from "../processes/usage.ts";
import type { BodyName } from "../requests.ts";
import type { Settings } from "../settings.ts";
import { grpcLoad, listening, noteOf, webhookLoad } from "./parts.ts";

/** How an ingest is measured. */
interface IngestPlan {
	readonly name: string;
	readonly body: BodyName;
	/** Maximum number of requests under way at a time. */
	readonly concurrency: number;
	/** Minimum share of the yardstick's rate. */
	readonly target: number;
}

/** Maximum number of large bodies under way. It keeps every processor busy. */
const LARGE_CONCURRENCY = 32;

/** Durable ingest by webhook, compared with a server that only reads and parses the body. */
export function webhook(body: BodyName, target: number): Benchmark {
	const plan = { name: `webhook-${body}`, body, concurrency: concurrencyOf(body), target };
	return {
		name: plan.name,
		about: "webhook ingest, durable, against a node:http server that reads the body and runs JSON.parse",
		comparable: true,
		async run(settings, report) {
			await using client = await Child.start("load/http.ts", z.unknown());
			const loadOf = (service: Service) => webhookLoad(plan.body, service);
			return await measureIngest(settings, plan, client, loadOf, report, async (subject, measure) => {
				await using yardstick = await Child.start("yardsticks/http-json.ts", listening);
				return await measure({ ...subject, name: "yardstick", pid: yardstick.pid, port: yardstick.ready.port });
			});
		},
	};
}

/** Durable ingest over gRPC, compared with a server that only decodes the message. */
export function grpc(body: BodyName, target: number): Benchmark {
	const plan = { name: `grpc-${body}`, body, concurrency: concurrencyOf(body), target };
	return {
		name: plan.name,
		about: "gRPC ingest, durable, against a grpc-js server that decodes the same message",
		comparable: true,
		async run(settings, report) {
			await using client = await Child.start("load/grpc.ts", z.unknown());
			const loadOf = (service: Service) => grpcLoad(body, service);
			return await measureIngest(settings, plan, client, loadOf, report, async (subject, measure) => {
				await using yardstick = await Child.start("yardsticks/grpc.ts", listening);
				const server = { name: "yardstick", pid: yardstick.pid, port: yardstick.ready.port, path: "/yardstick/Decode" };
				return await measure({ ...subject, ...server });
			});
		},
	};
}

function concurrencyOf(body: BodyName): number {
	return body === "large" ? LARGE_CONCURRENCY : Number.POSITIVE_INFINITY;
}

/** Starts a reference server for the subject and passes its load to `measure`. */
type WithReference = (
	subject: ServerUnderLoad,
	measure: (reference: ServerUnderLoad) => Promise<Figure[]>,
) => Promise<Figure[]>;

async function measureIngest(
	settings: Settings,
	plan: IngestPlan,
	client: Child<unknown>,
	loadOf: (service: Service) => Promise<ServerUnderLoad>,
	report: (line: string) => void,
	withYardstick: WithReference,
): Promise<Figure[]> {
	const { profile, against } = settings;
	const load = { ...settings, concurrency: Math.min(settings.concurrency, plan.concurrency) };
	await using folder = await DiskFolder.create(settings.folder);
	await using service = await Service.start({ database: folder.database, profile });
	const subject = await loadOf(service);
	const measure = async (reference: ServerUnderLoad): Promise<Figure[]> => {
		const pairs = await measurePairs(
			load,
			new ServerTarget(client, reference),
			new ServerTarget(client, subject),
			report,
		);
		const ratios = pairs.map(([before, after]) => after.rate / before.rate);
		const goal: Goal | undefined = against === undefined ? { at: "least", value: plan.target } : undefined;
		const figures = [ratioFigure(plan.name, ratios, goal, noteOf(pairs)), ...latencyFigures(plan.name, pairs)];
		// Profiling needs additional memory.
		const most = plan.body === "large" && profile === undefined ? 400 : undefined;
		figures.push(await memoryFigure(plan.name, service.pid, most));
		return figures;
	};
	if (against === undefined) return await withYardstick(subject, measure);
	await prepare(against);
	await using otherFolder = await DiskFolder.create(settings.folder);
	await using other = await Service.start({ database: otherFolder.database, root: against });
	const figures = await measure({ ...(await loadOf(other)), name: "other" });
	return [...figures, await memoryFigure(`${plan.name}, other checkout`, other.pid, undefined)];
}

/** Runs the prestart script of `npm start` in a checkout. Without its preparation a service takes more memory. */
export async function prepare(checkout: string): Promise<void> {
	await promisify(execFile)("npm", ["run", "prestart", "--if-present"], { cwd: checkout });
}

/** Returns the ratios of the latencies of a request. */
function latencyFigures(name: string, pairs: readonly (readonly [Measurement, Measurement])[]): Figure[] {
	return (["median", "99th percentile"] as const).map((which, index) => {
		const of = (side: 0 | 1) => pairs.map((pair) => pair[side].latency[index] ?? Number.NaN);
		const [before, after] = [of(0), of(1)];
		const ratios = after.map((latency, pair) => latency / (before[pair] ?? Number.NaN));
		const note = `${round(median(after))} ms against ${round(median(before))} ms`;
		return ratioFigure(`${name}: latency, ${which}`, ratios, undefined, note);
	});
}

async function memoryFigure(name: string, pid: number, most: number | undefined): Promise<Figure> {
	return {
		name: `${name}: peak resident memory`,
		value: (await peakResidentBytes(pid)) / 2 ** 20,
		unit: "MiB",
		target: most === undefined ? undefined : { at: "most", value: most },
		note: "",
	};
}
