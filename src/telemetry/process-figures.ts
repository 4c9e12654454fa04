import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { getHeapSpaceStatistics } from "node:v8";
import type { Metrics } from "./metrics.ts";

/** Milliseconds between two samples of the event loop's delay. */
const RESOLUTION = 20;

/** Adds metrics of the process and its main thread, under OpenTelemetry's names where it defines them. */
export function addProcessFigures(metrics: Metrics): Disposable {
	metrics.counter(
		{ name: "process.cpu.time", unit: "s", description: "Processor time of all threads of the process" },
		() => {
			const { user, system } = process.cpuUsage();
			return [
				{ value: user / 1e6, labels: { "cpu.mode": "user" } },
				{ value: system / 1e6, labels: { "cpu.mode": "system" } },
			];
		},
	);
	metrics.gauge({ name: "process.memory.usage", unit: "By", description: "Resident memory of the process" }, () => [
		{ value: process.memoryUsage.rss() },
	]);
	metrics.gauge({ name: "process.uptime", unit: "s", description: "Time since the process started" }, () => [
		{ value: process.uptime() },
	]);
	metrics.gauge(
		{ name: "v8js.memory.heap.used", unit: "By", description: "Heap of the main thread that is in use" },
		() =>
			getHeapSpaceStatistics().map(({ space_name, space_used_size }) => ({
				value: space_used_size,
				labels: { "v8js.heap.space.name": space_name },
			})),
	);

	const delay = monitorEventLoopDelay({ resolution: RESOLUTION });
	delay.enable();
	// A sample is the time since the previous one, so that the interval has to be subtracted.
	const seconds = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e9 - RESOLUTION / 1000);
	// Every collection reads all three metrics. The last one resets the histogram.
	const text = (name: string, what: string) => ({
		name: `nodejs.eventloop.delay.${name}`,
		unit: "s",
		description: `${what} of the main thread's event loop since metrics were last collected`,
	});
	metrics.gauge(text("p50", "Median delay"), () => [{ value: seconds(delay.percentile(50)) }]);
	metrics.gauge(text("p99", "99th percentile of the delay"), () => [{ value: seconds(delay.percentile(99)) }]);
	metrics.gauge(text("max", "Longest delay"), () => {
		const value = seconds(delay.max);
		delay.reset();
		return [{ value }];
	});
	let last = performance.eventLoopUtilization();
	metrics.gauge(
		{
			name: "nodejs.eventloop.utilization",
			unit: "1",
			description: "Share of the time since metrics were last collected in which the main thread's event loop was busy",
		},
		() => {
			const now = performance.eventLoopUtilization();
			const { utilization } = performance.eventLoopUtilization(now, last);
			last = now;
			return [{ value: utilization }];
		},
	);
	return { [Symbol.dispose]: () => delay.disable() };
}
