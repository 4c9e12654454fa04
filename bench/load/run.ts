import { quantile } from "../figures.ts";
import { type LoadPlan, type LoadResult, type Variation, vary } from "./plan.ts";

/**
 * Sends one request at a time, whose bytes must not change meanwhile. Resolves with a description of the failure, or
 * with undefined for success.
 */
export type Lane = (request: Buffer) => Promise<string | undefined>;

/** Sends requests over lanes, each with one request under way at a time, for the duration of the plan. */
export async function run(plan: LoadPlan, lanes: readonly Lane[]): Promise<LoadResult> {
	let next = plan.variation?.first ?? 0;
	const last = next + (plan.requests ?? Number.POSITIVE_INFINITY);
	const latencies: number[] = [];
	let failed = 0;
	let failure: string | undefined;
	const usage = process.cpuUsage();
	const start = performance.now();
	const end = start + plan.milliseconds;

	const send = async ({ lane, steps }: Copy): Promise<void> => {
		const { request, variation } = stepOf(steps, next);
		if (variation !== undefined) vary(request, variation, next);
		next += 1;
		const sent = performance.now();
		const wrong = await lane(request);
		if (wrong === undefined) {
			const now = performance.now();
			if (now <= end) latencies.push(now - sent);
			return;
		}
		failed += 1;
		failure ??= wrong;
	};
	const { request, variation, steps = [{ request, variation }] } = plan;
	const copies = lanes.map((lane) => ({
		lane,
		steps: steps.map((step) => ({ ...step, request: Buffer.from(step.request) })),
	}));
	if (plan.rate === undefined) {
		await Promise.all(
			copies.map(async (copy) => {
				// After a first failure the server would probably refuse all further requests too.
				while (performance.now() < end && next < last && failed === 0) await send(copy);
			}),
		);
	} else await paced(copies, send, plan.rate, start, end);
	const { user, system } = process.cpuUsage(usage);
	const clientSeconds = (user + system) / 1e6;
	const seconds = Math.min(performance.now() - start, plan.milliseconds) / 1000;
	const latency: LoadResult["latency"] =
		latencies.length === 0 ? [0, 0] : [quantile(latencies, 0.5), quantile(latencies, 0.99)];
	return { answered: latencies.length, seconds, latency, failed, failure, next, clientSeconds };
}

/** A lane with requests of its own. */
interface Copy {
	readonly lane: Lane;
	readonly steps: readonly Step[];
}

interface Step {
	readonly request: Buffer;
	readonly variation?: Variation | undefined;
}

/** Returns the step of request number `n`. */
function stepOf(steps: readonly Step[], n: number): Step {
	const update = Math.floor(n / (steps[0]?.variation?.conversations ?? 1));
	const step = steps[Math.min(update, steps.length - 1)];
	if (step === undefined) throw new Error("a load has no request");
	return step;
}

/** Sends at a constant rate. A request that is due while all lanes are busy is sent as soon as one is free. */
async function paced(
	copies: readonly Copy[],
	send: (copy: Copy) => Promise<void>,
	rate: number,
	start: number,
	end: number,
): Promise<void> {
	const free = [...copies];
	const underWay = new Set<Promise<void>>();
	let sent = 0;
	while (performance.now() < end) {
		while (sent < ((performance.now() - start) / 1000) * rate) {
			const copy = free.pop();
			if (copy === undefined) break;
			sent += 1;
			const sending = send(copy).then(() => {
				free.push(copy);
				underWay.delete(sending);
			});
			underWay.add(sending);
		}
		await new Promise((resolve) => setTimeout(resolve, 1));
	}
	await Promise.all(underWay);
}
