import { cpus } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { ServiceProcess } from "../support/child.ts";
import { type Transport, WITH_LARGE_RECORDS, WITH_SMALL_RECORDS } from "./overload-transports.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";
import { quiet, Subject } from "./subject.ts";

const MiB = 2 ** 20;
/** Maximum resident memory of the service, in bytes: the limit in deploy/kubernetes.yaml. */
const MAX_MEMORY = 3 * 1024 * MiB;
/** Concurrent requests while the best rate is measured: fewer than the service always admits. */
const NORMAL_CONCURRENCY = 48;
/**
 * Maximum processor time of the main thread while a probe of `/healthz` waits, in milliseconds: three times the timeout
 * of the probe in deploy/kubernetes.yaml, which may fail three times. A probe waits behind all clients that connect at
 * the same moment, because Node.js accepts one connection in a turn of the event loop.
 */
const PROBE_WORK = 9_000;
/** Offered rate, as a multiple of the best rate. */
const OVERLOAD_FACTOR = 5;
/** Minimum share of the best rate that must succeed at this offered rate. */
const MIN_SHARE = 0.4;
/** Minimum share with clients that ignore the request to wait and send again at once. Each refusal costs time. */
const MIN_SHARE_WITHOUT_PAUSE = 0.2;
/** Minimum duration of a load, in seconds, from which its rate and memory are judged. */
const MIN_JUDGED_SECONDS = 10;
/**
 * Maximum number of concurrent requests. When all are waiting, no more can be offered. Without judging fewer are enough
 * to get some refused.
 */
const MAX_CONCURRENT = 3_000;
const MAX_CONCURRENT_UNJUDGED = 600;
/** Seconds of a load that are not measured, in which connections open and the first admitted requests queue up. */
const SETTLING = 3;
/** Milliseconds between two checks for requests that are due. */
const TICK = 5;

/** Offers records at five times the rate that the service can process. */
export const overload: Run = {
	name: "overload",
	about: "five times the best rate of records; successes must stay at 0.4 of it, and reads and the health must answer",
	counted: "seconds of each load",
	long: 10,
	short: 1,
	async run(count, _random, report) {
		// In a few seconds rates and memory are not meaningful.
		const judged = count >= MIN_JUDGED_SECONDS;
		for (const transportOf of judged ? [...WITH_SMALL_RECORDS, ...WITH_LARGE_RECORDS] : WITH_SMALL_RECORDS) {
			// A new service, without work left over from another load.
			await using subject = await Subject.start(report);
			const most = judged ? MAX_CONCURRENT : MAX_CONCURRENT_UNJUDGED;
			const load = { transport: transportOf(subject.service), service: subject.service, report, judged, most };
			await subject.amongOrdinary(() => overloaded(load, subject, count), "reads", PROBE_WORK);
			await subject.expectSound();
		}
	},
};

/** Rate of successes, and of the requests that were sent. */
interface Rate {
	/** Per second. */
	readonly successes: number;
	/** Per second of processor time that the service used or could have used. */
	readonly perProcessor: number;
	readonly offered: number;
}

/** A load and its service. */
interface Load {
	readonly transport: Transport;
	readonly service: ServiceProcess;
	readonly report: Report;
	/** Whether the requirements for rate and memory apply. */
	readonly judged: boolean;
	/** Maximum number of concurrent requests. */
	readonly most: number;
}

async function overloaded(load: Load, subject: Subject, seconds: number): Promise<void> {
	const { transport, report, judged, most } = load;
	const { name } = transport;
	const atOnce = (count: number, seconds: number) =>
		measured(load, count, seconds, ({ waiting }) => count - waiting, count > NORMAL_CONCURRENCY);
	// Warm-up: V8 compiles and caches fill.
	await atOnce(NORMAL_CONCURRENCY, seconds / 2);
	const best = await atOnce(NORMAL_CONCURRENCY, seconds);
	report.figure(`${name}: best rate ${Math.round(best.successes)} records a second, ${NORMAL_CONCURRENCY} at a time`);
	const judge = (what: string, rate: Rate, least: number): void => {
		const plain = (rate.successes / best.successes).toFixed(2);
		const share = (rate.perProcessor / best.perProcessor).toFixed(2);
		const successes = `${Math.round(rate.successes)} successes a second`;
		report.figure(
			`${name}: ${what}: ${successes}, ${plain} of the best rate, ${share} of it with the same processor time`,
		);
		report.expect(
			!judged || Number(share) >= least,
			`successes over ${name} with ${what} fell to ${share} of the best rate, below ${least}`,
		);
	};
	const both = async (): Promise<void> => {
		const rate = best.successes * OVERLOAD_FACTOR;
		const offered = await measured(load, most, seconds, ({ elapsed, sent }) => elapsed * rate - sent, true);
		judge(`${(offered.offered / best.successes).toFixed(1)} times that offered`, offered, MIN_SHARE);
		judge(`${most} at a time`, await atOnce(most, seconds), MIN_SHARE_WITHOUT_PAUSE);
	};
	if (judged) await subject.untilSteady(both, quiet(seconds, overload), MAX_MEMORY);
	else await both();
}

/** State of a load, from which follows how many requests are due. */
interface State {
	/** Seconds since the start. */
	readonly elapsed: number;
	readonly sent: number;
	/** Number of requests without an answer. */
	readonly waiting: number;
}

/**
 * Sends requests as they are due, at most as many concurrently, and measures after the load has settled.
 *
 * @param refusable whether the service may ask to try again
 */
async function measured(
	{ transport, service, report }: Load,
	most: number,
	seconds: number,
	due: (state: State) => number,
	refusable: boolean,
): Promise<Rate> {
	const lanes = transport.lanes(most);
	const answers: Promise<void>[] = [];
	let successes = 0;
	const settle = async (answer: Promise<string>): Promise<void> => {
		const given = await answer;
		report.answer(`records over ${transport.name}`, given, { refusable });
		if (given === transport.success) successes += 1;
	};
	const start = performance.now();
	const elapsed = () => (performance.now() - start) / 1000;
	const sample = () => ({ at: elapsed(), used: service.processorSeconds, idle: idleSeconds(), successes });
	const settling = Math.min(SETTLING, seconds / 2);
	let begun: ReturnType<typeof sample> | undefined;
	while (begun === undefined || elapsed() < begun.at + seconds) {
		if (begun === undefined && elapsed() >= settling) begun = sample();
		const state = { elapsed: elapsed(), sent: answers.length, waiting: lanes.waiting };
		for (let count = due(state); count >= 1; count--) {
			const answer = lanes.send(transport.request());
			if (answer === undefined) break;
			answers.push(settle(answer));
		}
		await delay(TICK);
	}
	const [ended, offered] = [sample(), answers.length / elapsed()];
	lanes.close();
	await Promise.all(answers);
	const [time, own, count] = [ended.at - begun.at, ended.used - begun.used, ended.successes - begun.successes];
	// Where the service's processor time is unknown, all time counts.
	const left = own === 0 ? time : own + ended.idle - begun.idle;
	return { successes: count / time, perProcessor: count / left, offered };
}

/** Returns the idle time of all processors of the machine, in seconds. */
function idleSeconds(): number {
	return cpus().reduce((sum, { times }) => sum + times.idle / 1000, 0);
}
