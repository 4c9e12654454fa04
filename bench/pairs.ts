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
	}: Pick<LoadPlan, "concurrency" | "milliseconds" | "rate" | "requests">): Promise<Measurement> {
		const { pid, port, path, key, template } = this.#server;
		const { conversations = CONVERSATIONS, firstConversation = 0 } = this.#server;
		const variation = template.places && { ...template.places, conversations, firstConversation, first: this.#next };
		const limits = { concurrency, milliseconds, rate, requests };
		const plan: LoadPlan = { ...limits, port, path, key, request: template.request, variation };
		const before = { used: await processorSeconds(pid), written: await writtenBytes(pid) };
		const result: LoadResult = await this.#client.ask(plan, loadResult);
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
		};
	}
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
