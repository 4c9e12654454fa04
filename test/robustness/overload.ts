import { cpus } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { ServiceProcess } from "../support/child.ts";
import { type Transport, WITH_LARGE_RECORDS, WITH_SMALL_RECORDS } from "./overload-transports.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";
import { quiet, Subject } from "./subject.ts";

const MiB = 2 ** 20;
/** Most memory that the service may have: the limit in deploy/kubernetes.yaml. */
const MEMORY = 3 * 1024 * MiB;
/** Requests under way while the best rate is measured: fewer than the service takes at least. */
const SANE = 48;
/** How many times the best rate is offered. */
const TIMES = 5;
/** Least share of the best rate that must be successes at five times the best rate. */
const SHARE = 0.8;
/** The same with clients that send again at once although they are told to wait: each refusal takes work. */
const HAMMERED_SHARE = 0.6;
/** Seconds of load from which the rate and the memory are judged. */
const JUDGED = 10;
/** Requests at a time; when all are waiting, no more can be offered. Fewer where nothing is judged, but some are refused. */
const AT_A_TIME = 3_000;
const AT_A_TIME_UNJUDGED = 600;
/** Seconds of a load that are not measured: connections open, and what is taken at first has to wait until it is done. */
const SETTLING = 3;
/** Milliseconds between two looks at how many requests are due. */
const TICK = 5;

/** Records are offered at five times the rate at which the service can take them. */
export const overload: Run = {
	name: "overload",
	about: "five times the best rate of records; successes must stay at 0.8 of it, and reads and the health must answer",
	counted: "seconds of each load",
	long: 10,
	short: 1,
	async run(count, _random, report) {
		// In a few seconds rates and memory say little.
		const judged = count >= JUDGED;
		for (const transportOf of judged ? [...WITH_SMALL_RECORDS, ...WITH_LARGE_RECORDS] : WITH_SMALL_RECORDS) {
			// A service of its own, which has nothing left to do of another load.
			await using subject = await Subject.start(report);
			const most = judged ? AT_A_TIME : AT_A_TIME_UNJUDGED;
			const load = { transport: transportOf(subject.service), service: subject.service, report, judged, most };
			await subject.amongOrdinary(() => overloaded(load, subject, count), "reads");
			await subject.expectSound();
		}
	},
};

/** Successes of a load. */
interface Rate {
	/** A second. */
	readonly successes: number;
	/** In each second of processor time that the service had or could have had. */
	readonly perProcessor: number;
}

/** What a load is made on. */
interface Load {
	readonly transport: Transport;
	readonly service: ServiceProcess;
	readonly report: Report;
	/** Whether the laws about the rate and the memory hold for it. */
	readonly judged: boolean;
	/** Most requests at a time. */
	readonly most: number;
}

async function overloaded(load: Load, subject: Subject, seconds: number): Promise<void> {
	const { transport, report, judged, most } = load;
	const { name } = transport;
	// The engine compiles, and caches fill.
	await atOnce(load, SANE, seconds / 2);
	const best = await atOnce(load, SANE, seconds);
	report.figure(`${name}: best rate ${Math.round(best.successes)} records a second, ${SANE} at a time`);
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
		const offered = await offer(load, best.successes * TIMES, seconds);
		judge(`${(offered.offered / best.successes).toFixed(1)} times that offered`, offered, SHARE);
		judge(`${most} at a time`, await atOnce(load, most, seconds), HAMMERED_SHARE);
	};
	if (judged) await subject.untilSteady(both, quiet(seconds, overload), MEMORY);
	else await both();
}

/** Counts the successes of a load, when it has settled. */
class Meter {
	readonly #service: ServiceProcess;
	readonly #settled: Promise<void>;
	#begun: { at: number; used: number; idle: number } | undefined;
	#successes = 0;

	/** @param settling seconds from here on that are not measured */
	constructor(service: ServiceProcess, settling: number) {
		this.#service = service;
		this.#settled = delay(settling * 1000).then(() => {
			this.#begun = { at: performance.now(), used: service.processorSeconds, idle: idleSeconds() };
		});
	}

	success(): void {
		if (this.#begun !== undefined) this.#successes += 1;
	}

	/** Measures for some seconds more. */
	async rate(seconds: number): Promise<Rate> {
		await this.#settled;
		await delay(seconds * 1000);
		const { at = 0, used = 0, idle = 0 } = this.#begun ?? {};
		this.#begun = undefined;
		const elapsed = (performance.now() - at) / 1000;
		const own = this.#service.processorSeconds - used;
		// Where it cannot be told what the service has used, all time counts.
		const left = own === 0 ? elapsed : own + idleSeconds() - idle;
		return { successes: this.#successes / elapsed, perProcessor: this.#successes / left };
	}
}

/** Seconds in which the machine's processors had nothing to do. */
function idleSeconds(): number {
	return cpus().reduce((sum, { times }) => sum + times.idle / 1000, 0);
}

/** Makes as many requests at a time as given, each after the answer to another one, whatever that says. */
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
			report.answer(`records over ${name}`, answer, { refusable: most > SANE });
			if (answer === success) meter.success();
		}
	};
	const all = Promise.all(Array.from({ length: most }, lane));
	// A lane that fails ends all.
	const failed = new Promise<never>((_, reject) => all.catch(reject));
	const rate = await Promise.race([meter.rate(seconds), failed]);
	over = true;
	lanes.close();
	await all;
	return rate;
}

/** Offers requests at a rate, whatever the answers are; gives what was offered and successes, a second. */
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
