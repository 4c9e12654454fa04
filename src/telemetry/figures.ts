import { stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { getHeapSpaceStatistics } from "node:v8";
import { sumOfCosts } from "../record/stats.ts";
import type { Store } from "../store/store.ts";
import type { ModelUsage } from "../store/usage-report.ts";
import type { Metrics, Sample } from "./metrics.ts";

/** Maximum number of models that have metrics of their own. Further ones are counted together, as {@link OTHER}. */
const MAX_MODELS = 20;
const OTHER = "other";
const MAX_LABEL = 80;

/**
 * Adds counters of usage by model. They are the sums of the database, also of the time before this process. When a
 * correction takes usage back, a counter keeps its value until the sum has passed it.
 */
export function addUsageFigures(metrics: Metrics, store: Pick<Store, "listModelUsage">): void {
	const named = new Set<string>();
	const labelOf = (model: string): string => {
		const label = model.slice(0, MAX_LABEL).toWellFormed();
		if (named.size < MAX_MODELS) named.add(label);
		return named.has(label) ? label : OTHER;
	};
	const add = (
		name: "cost" | "tokens" | "calls",
		valuesOf: (usage: ModelUsage) => Sample[],
		sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0),
	): void => {
		const counted = new Map<string, Sample>();
		metrics.observe(`usage.${name}`, async () => {
			const all = await store.listModelUsage().catch((): ModelUsage[] => []);
			const samples = all
				.toSorted((a, b) => b.cost - a.cost)
				.flatMap((usage) => {
					const model = labelOf(usage.model);
					return valuesOf(usage).map(([value, labels]): Sample => [value, { ...labels, model }]);
				});
			for (const [key, same] of Map.groupBy(samples, ([, labels]) => JSON.stringify(labels))) {
				const value = Math.max(sumOf(same.map(([one]) => one)), counted.get(key)?.[0] ?? 0);
				counted.set(key, [value, same[0]?.[1] ?? {}]);
			}
			return [...counted.values()];
		});
	};
	add("cost", ({ cost }) => [[cost]], sumOfCosts);
	add("tokens", ({ tokens }) => Object.entries(tokens).map(([kind, value]) => [value, { kind }]));
	add("calls", ({ calls }) => [[calls]]);
}

/** Adds metrics of the database files and the disk that holds them. A file that does not exist has no size. */
export function addFileFigures(metrics: Metrics, databasePath: string): void {
	const sizeOf = async (path: string, file: string): Promise<Sample[]> => {
		const found = await stat(path).catch(() => undefined);
		return found === undefined ? [] : [[found.size, { file }]];
	};
	metrics.observe("database.size", async () => [
		...(await sizeOf(databasePath, "database")),
		...(await sizeOf(`${databasePath}-wal`, "write-ahead-log")),
	]);
	const disk = (space: "bavail" | "blocks") => async (): Promise<Sample[]> => {
		const found = await statfs(dirname(databasePath));
		return [[found[space] * found.bsize]];
	};
	metrics.observe("disk.available", disk("bavail"));
	metrics.observe("disk.size", disk("blocks"));
}

/** Milliseconds between two samples of the event loop's delay. */
const RESOLUTION = 20;

export function addProcessFigures(metrics: Metrics): Disposable {
	metrics.observe("process.cpu.time", () => {
		const { user, system } = process.cpuUsage();
		return Object.entries({ user, system }).map(([mode, time]) => [time / 1e6, { "cpu.mode": mode }]);
	});
	metrics.observe("process.memory.usage", () => [[process.memoryUsage.rss()]]);
	metrics.observe("process.uptime", () => [[process.uptime()]]);
	metrics.observe("v8js.memory.heap.used", () =>
		getHeapSpaceStatistics().map(({ space_name, space_used_size }) => [
			space_used_size,
			{ "v8js.heap.space.name": space_name },
		]),
	);

	const delay = monitorEventLoopDelay({ resolution: RESOLUTION });
	delay.enable();
	// A sample is the time since the previous one, so that the interval has to be subtracted.
	const seconds = (nanoseconds: number): Sample[] => [[Math.max(0, nanoseconds / 1e9 - RESOLUTION / 1000)]];
	// Every collection reads all three metrics. The last one resets the histogram.
	metrics.observe("nodejs.eventloop.delay.p50", () => seconds(delay.percentile(50)));
	metrics.observe("nodejs.eventloop.delay.p99", () => seconds(delay.percentile(99)));
	metrics.observe("nodejs.eventloop.delay.max", () => {
		const longest = seconds(delay.max);
		delay.reset();
		return longest;
	});
	let last = performance.eventLoopUtilization();
	metrics.observe("nodejs.eventloop.utilization", () => {
		const now = performance.eventLoopUtilization();
		const { utilization } = performance.eventLoopUtilization(now, last);
		last = now;
		return [[utilization]];
	});
	return { [Symbol.dispose]: () => delay.disable() };
}
