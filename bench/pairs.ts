import { setTimeout as delay } from "node:timers/promises";
import { round } from "./figures.ts";
import { type LoadPlan, type LoadResult, loadResult } from "./load/plan.ts";
import type { Child } from "./processes/child.ts";
import { processorSeconds, writtenBytes } from "./processes/usage.ts";
import type { RequestTemplate } from "./requests.ts";
import type { Settings } from "./settings.ts";

/** Address and request of a server under load. */
export interface ServerUnderLoad {
	/** Name in the progress lines. */
	readonly name: string;
	readonly pid: number;
	readonly port: number;
	readonly template: RequestTemplate;
	/** Requests for the updates of a conversation, in place of the template: see `LoadPlan.steps`. */
	readonly steps?: readonly RequestTemplate[];
	/** For gRPC: path of the method and access key. */
	readonly path?: string;
	readonly key?: string;
	/** Number of conversations to which the updates belong in turn. Default: {@link CONVERSATIONS}. */
	readonly conversations?: number;
	/** Number of the first of these conversations. Default: 0. */
	readonly firstConversation?: number;
}

/** One measurement of a server. */
export interface Measurement {
	/** Successful responses per second. */
	readonly rate: number;
	/** Processor time of the server per request, in milliseconds. */
	readonly cost: number;
	/** Bytes that the server wrote to disk for each request, if that was measured. */
	readonly written?: number;
	/** Processor time of the load client, as a share of one core. */
	readonly client: number;
	/** Median and 99th percentile of the request latency, in milliseconds. */
	readonly latency: readonly [number, number];
	/** Seconds after the load until the server was idle, if that was waited for. */
	readonly idleAfter?: number | undefined;
}

/** Default number of conversations to which the updates of a load belong. */
export const CONVERSATIONS = 1_000;

/** Something that can be put under load repeatedly, for a limited time each. */
export interface LoadTarget {
	/** Name in the progress lines. */
	readonly name: string;
	load(limits: Pick<Settings, "concurrency" | "milliseconds">): Promise<Measurement>;
}

/** Puts a server under load. It numbers the requests, so that each one is a new update. */
export class ServerTarget implements LoadTarget {
	readonly #client: Child<unknown>;
	readonly #server: ServerUnderLoad;
	#next: number;

	constructor(client: Child<unknown>, server: ServerUnderLoad, first = 0) {
		this.#client = client;
		this.#server = server;
		this.#next = first;
	}

	get name(): string {
		return this.#server.name;
	}

	/** Number of requests so far, including those that `first` skips. */
	get sent(): number {
		return this.#next;
	}

	/** @throws Error when a request failed */
	async load({
		concurrency,
		milliseconds,
		rate,
		requests,
		untilIdle = false,
	}: Pick<LoadPlan, "concurrency" | "milliseconds" | "rate" | "requests"> & {
		/** Whether what the server still does after the load counts: its processor time, and what it writes. */
		readonly untilIdle?: boolean;
	}): Promise<Measurement> {
		const { pid, port, path, key, template } = this.#server;
		const { conversations = CONVERSATIONS, firstConversation = 0 } = this.#server;
		const variationOf = ({ places }: RequestTemplate) =>
			places && { ...places, conversations, firstConversation, first: this.#next };
		const steps = this.#server.steps?.map((step) => ({ request: step.request, variation: variationOf(step) }));
		const limits = { concurrency, milliseconds, rate, requests };
		const varied = { request: template.request, variation: variationOf(template) };
		const plan = { ...limits, port, path, key, ...varied, steps };
		const before = { used: await processorSeconds(pid), written: await writtenBytes(pid) };
		const result: LoadResult = await this.#client.ask(plan, loadResult);
		const idleAfter = untilIdle ? await untilIdleOf(pid) : undefined;
		const used = (await processorSeconds(pid)) - before.used;
		const written = (await writtenBytes(pid)) - before.written;
		this.#next = result.next;
		if (result.failed > 0)
			throw new Error(`${this.name}: ${result.failed} requests failed, the first: ${result.failure}`);
		return {
			rate: result.answered / result.seconds,
			cost: (used / result.answered) * 1000,
			written: written / result.answered,
			client: result.clientSeconds / result.seconds,
			latency: result.latency,
			idleAfter,
		};
	}
}

/** Milliseconds in which an idle process uses less than {@link IDLE_SECONDS} of processor time, four times in turn. */
const IDLE_INTERVAL = 500;
const IDLE_SECONDS = 0.02;
/** Maximum number of these intervals. */
const MAX_INTERVALS = 240;

/** Waits until a process is idle. Returns the seconds until it was. */
async function untilIdleOf(pid: number): Promise<number> {
	const began = performance.now();
	let idle = 0;
	let used = await processorSeconds(pid);
	for (let interval = 0; idle < 4; interval++) {
		if (interval === MAX_INTERVALS) throw new Error("the server does not become idle");
		await delay(IDLE_INTERVAL);
		const now = await processorSeconds(pid);
		idle = now - used < IDLE_SECONDS ? idle + 1 : 0;
		used = now;
	}
	return (performance.now() - began - 4 * IDLE_INTERVAL) / 1000;
}

/** Number of measurements that are not counted. V8 still compiles hot functions during them. */
const WARM_UP = 4;

/**
 * Measures two servers alternately, after warming up both, and reports each pair.
 *
 * @param settled resolves when the subject has finished the work that its load has left, which would otherwise slow
 *   down the next measurement
 */
export async function measurePairs(
	settings: Settings,
	yardstick: LoadTarget,
	subject: LoadTarget,
	report: (line: string) => void,
	settled: () => Promise<void> = async () => {},
): Promise<[Measurement, Measurement][]> {
	for (let i = 0; i < WARM_UP; i++) {
		await yardstick.load(settings);
		await subject.load(settings);
	}
	await settled();
	const pairs: [Measurement, Measurement][] = [];
	for (let i = 1; i <= settings.rounds; i++) {
		const pair: [Measurement, Measurement] = [await yardstick.load(settings), await subject.load(settings)];
		await settled();
		pairs.push(pair);
		const [first, second] = pair;
		report(`  ${i}/${settings.rounds} ${yardstick.name} ${formatted(first)} | ${subject.name} ${formatted(second)}`);
	}
	return pairs;
}

function formatted({ rate, cost, client }: Measurement): string {
	return `${round(rate)}/s, ${round(cost)} ms CPU each, client ${round(client * 100)} %`;
}
