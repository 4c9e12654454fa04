import { join } from "node:path";
import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, ratioFigure, round } from "../figures.ts";
import { CONVERSATIONS, type Measurement, measurePairs, ServerTarget, type ServerUnderLoad } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { peakResidentBytes } from "../processes/usage.ts";
import type { Settings } from "../settings.ts";
import { prepare } from "./ingest.ts";
import { listening, webhookLoad } from "./parts.ts";

/** Numbers of connections, each with the least share of the yardstick's rate that the service should reach. */
const CONNECTIONS: readonly (readonly [connections: number, target: number | undefined])[] = [
	[1, undefined],
	[8, 0.75],
	[64, 0.8],
];

/**
 * Durable ingest of small records, compared with a server made of the same parts: `node:http`, the intake of the service
 * in the main thread, and one insert by a thread. Each number of connections posts to one conversation, and to
 * {@link CONVERSATIONS} in turn.
 */
export const yardstick: Benchmark = {
	name: "yardstick",
	about: "webhook ingest of the small record, durable, against node:http with the same intake and one insert",
	comparable: true,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		await using service = await Service.start({ database: folder.database, profile: settings.profile });
		const subject = await webhookLoad("small", service);
		await using client = await Child.start("load/http.ts", z.unknown());
		const { against } = settings;
		await using otherFolder = await DiskFolder.create(settings.folder);
		if (against === undefined) {
			const path = join(otherFolder.path, "log.db");
			await using bare = await Child.start("yardsticks/http-ingest.ts", listening, [path]);
			const reference = { ...subject, name: "yardstick", pid: bare.pid, port: bare.ready.port };
			return await measureAll(settings, client, reference, subject, report);
		}
		await prepare(against);
		await using other = await Service.start({ database: otherFolder.database, root: against });
		const reference = { ...(await webhookLoad("small", other)), name: "other" };
		const figures = await measureAll(settings, client, reference, subject, report);
		const [own, others] = await Promise.all([service, other].map(({ pid }) => peakResidentBytes(pid)));
		const note = `against ${round((others ?? Number.NaN) / 2 ** 20)} MiB`;
		return [...figures, { name: "yardstick: peak memory", value: (own ?? Number.NaN) / 2 ** 20, unit: "MiB", note }];
	},
};

async function measureAll(
	settings: Settings,
	client: Child<unknown>,
	reference: ServerUnderLoad,
	subject: ServerUnderLoad,
	report: (line: string) => void,
): Promise<Figure[]> {
	const figures: Figure[] = [];
	// Each measurement has conversations of its own, because all of them begin with the first update.
	let firstConversation = 0;
	for (const conversations of [1, CONVERSATIONS]) {
		for (const [concurrency, target] of CONNECTIONS) {
			const name = `yardstick: ${concurrency} to ${conversations}`;
			report(`  ${name}`);
			const load = { conversations, firstConversation };
			const pairs = await measurePairs(
				{ ...settings, concurrency },
				new ServerTarget(client, { ...reference, ...load }),
				new ServerTarget(client, { ...subject, ...load }),
				report,
			);
			firstConversation += conversations;
			const ratios = pairs.map(([before, after]) => after.rate / before.rate);
			const goal =
				settings.against !== undefined || target === undefined ? undefined : ({ at: "least", value: target } as const);
			const note = `${described(pairs.map(([, after]) => after))} against ${described(pairs.map(([before]) => before))}`;
			figures.push(ratioFigure(name, ratios, goal, note));
		}
	}
	return figures;
}

/** Returns the medians of measurements as text. */
function described(measurements: readonly Measurement[]): string {
	const of = (figure: (measurement: Measurement) => number) => round(median(measurements.map(figure)));
	const [rate, cost] = [of((one) => one.rate), of((one) => one.cost * 1000)];
	const [middle, slow] = [of((one) => one.latency[0]), of((one) => one.latency[1])];
	const written = of((one) => (one.written ?? Number.NaN) / 1024);
	return `${rate}/s (${cost} µs of processor time, median ${middle} ms, p99 ${slow} ms, ${written} KiB written)`;
}
