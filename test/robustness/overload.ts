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

/** Rate of successes. */
interface Rate {
	/** Per second. */
	readonly successes: number;
	/** Per second of processor time that the service used or could have used. */
	readonly perProcessor: number;
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
	// Warm-up: V8 compiles and caches fill.
	await atOnce(load, NORMAL_CONCURRENCY, seconds / 2);
	const best = await atOnce(load, NORMAL_CONCURRENCY, seconds);
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
		const offered = await offer(load, best.successes * OVERLOAD_FACTOR, seconds);
		judge(`${(offered.offered / best.successes).toFixed(1)} times that offered`, offered, MIN_SHARE);
		judge(`${most} at a time`, await atOnce(load, most, seconds), MIN_SHARE_WITHOUT_PAUSE);
	};
	if (judged) await subject.untilSteady(both, quiet(seconds, overload), MAX_MEMORY);
	else await both();
}

/** Counts the successes of a load once it has settled. */
class Meter {
	readonly #service: ServiceProcess;
	readonly #settled: Promise<void>;
	#begun: { at: number; used: number; idle: number } | undefined;
	#successes = 0;

	/** @param settling seconds from now that are not measured */
	constructor(service: ServiceProcess, settling: number) {
		this.#service = service;
		this.#settled = delay(settling * 1000).then(() => {
			this.#begun = { at: performance.now(), used: service.processorSeconds, idle: idleSeconds() };
		});
	}

	success(): void {
		if (this.#begun !== undefined) this.#successes += 1;
	}

	/** Measures for the given number of seconds after settling. */
	async rate(seconds: number): Promise<Rate> {
		await this.#settled;
		await delay(seconds * 1000);
		const { at = 0, used = 0, idle = 0 } = this.#begun ?? {};
		this.#begun = undefined;
		const elapsed = (performance.now() - at) / 1000;
		const own = this.#service.processorSeconds - used;
		// Where the service's processor time is unknown, all time counts.
		const left = own === 0 ? elapsed : own + idleSeconds() - idle;
		return { successes: this.#successes / elapsed, perProcessor: this.#successes / left };
	}
}

/** Returns the idle time of all processors of the machine, in seconds. */
function idleSeconds(): number {
	return cpus().reduce((sum, { times }) => sum + times.idle / 1000, 0);
}

/** Keeps `most` requests under way. Each response, whatever it is, is followed by the next request. */
async function atOnce(load: Load, most: number, seconds: number): Promise<Rate> {
	const { transport, service, report } = load;
	const { lanes: open, request, success, name } = transport;
	const lanes = open(most);
	const meter = new Meter(service, settling(seconds));
	let over = false;
	const lane = async (): Promise<void> => {
		while (!over) {
			const answer = await lanes.send(request());
			if (answer === undefined) throw new Error("there are too few lanes");
			report.answer(`records over ${name}`, answer, { refusable: most > NORMAL_CONCURRENCY });
			if (answer === success) meter.success();
		}
	};
	const all = Promise.all(Array.from({ length: most }, lane));
	// The failure of one lane ends the load.
	const failed = new Promise<never>((_, reject) => all.catch(reject));
	const rate = await Promise.race([meter.rate(seconds), failed]);
	over = true;
	lanes.close();
	await all;
	return rate;
}

/** Offers requests at a rate, regardless of the responses. Returns the rates of offered requests and of successes. */
async function offer(load: Load, rate: number, seconds: number): Promise<Rate & { readonly offered: number }> {
	const { transport, service, report, most } = load;
	const { name, success, request } = transport;
	const lanes = transport.lanes(most);
	const meter = new Meter(service, settling(seconds));
	const measuring = meter.rate(seconds);
	const waits: number[] = [];
	const sent: Promise<void>[] = [];
	let over = false;
	const settle = async (answer: Promise<string>): Promise<void> => {
		const began = performance.now();
		const given = await answer;
		report.answer(`records over ${name}`, given, { refusable: true });
		if (given !== success || over) return;
		meter.success();
		waits.push(performance.now() - began);
	};
	const start = performance.now();
	const elapsed = () => (performance.now() - start) / 1000;
	const ended = measuring.then(() => true);
	for (;;) {
		for (let due = elapsed() * rate - sent.length; due >= 1; due--) {
			const answer = lanes.send(request());
			if (answer === undefined) break;
			sent.push(settle(answer));
		}
		if (await Promise.race([ended, delay(TICK, false)])) break;
	}
	over = true;
	const offered = sent.length / elapsed();
	const waiting = lanes.waiting;
	lanes.close();
	await Promise.all(sent);
	waits.sort((a, b) => a - b);
	const median = Math.round(waits[Math.floor(waits.length / 2)] ?? 0);
	report.figure(`median wait of a success ${median} ms, ${waiting} without an answer at the end`);
	return { ...(await measuring), offered };
}

function settling(seconds: number): number {
	return Math.min(SETTLING, seconds / 2);
}
