import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { HttpLanes } from "../support/http-lanes.ts";
import { postBytes } from "../support/raw-http.ts";
import { httpAddress } from "../support/raw-socket.ts";
import { KEY } from "../support/service.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";
import { quiet, Subject } from "./subject.ts";

const MiB = 2 ** 20;
/** Most memory that the service may have: the limit in deploy/kubernetes.yaml. */
const MEMORY = 3 * 1024 * MiB;
/** Requests under way while the best rate is measured. */
const SANE = 32;
/** How many times the best rate is offered. */
const TIMES = 5;
/** Least share of the best rate that must be successes under too much load. */
const SHARE = 0.8;
/** Seconds of load from which the rate and the memory are judged. */
const JUDGED = 10;
/** Connections over which it is offered; when all are waiting, no more can be. */
const CONNECTIONS = 3_000;
/** Milliseconds between two looks at how many requests are due. */
const TICK = 5;
/** Bytes of a record's free-form JSON: work for the service, of which the client sends a packed form that is small. */
const RECORD_BYTES = 200_000;

/** Records are offered at five times the rate at which the service can take them. */
export const overload: Run = {
	name: "overload",
	about: "five times the best rate of records; successes must stay at 0.8 of it, and reads and the health must answer",
	counted: "seconds of each load",
	long: 20,
	short: 1,
	async run(count, _random, report) {
		await using subject = await Subject.start(report);
		// In a few seconds rates and memory say little.
		const judged = count >= JUDGED;
		const address = httpAddress(subject.service);
		const request = requests();
		// The engine compiles, and caches fill.
		await atOnce(address, request, count);
		const best = await atOnce(address, request, count);
		report.figure(`best rate: ${Math.round(best)} records a second, ${SANE} at a time`);
		const load = async (): Promise<void> => {
			const { offered, successes } = await offer(address, request, best * TIMES, count, report);
			report.figure(
				`${(offered / best).toFixed(1)} times that offered: ${Math.round(successes)} successes a second, ${(successes / best).toFixed(2)} of the best rate`,
			);
			report.expect(
				!judged || successes >= best * SHARE,
				`successes fell to ${(successes / best).toFixed(2)} of the best rate`,
			);
		};
		await subject.amongOrdinary(() => subject.twice(load, quiet(count, overload), MEMORY, judged), "reads");
		await subject.expectSound();
	},
};

/** Makes requests to the webhook, each with a record of its own. */
function requests(): () => Buffer {
	const lines = Array.from({ length: RECORD_BYTES / 100 }, (_, index) => ({ line: index, text: "x".repeat(70) }));
	const { id: _, ...members } = record({ agent_state: { lines } });
	// Packed once; the start with the id is packed by itself, because gzip data may be a sequence of members.
	const rest = gzipSync(JSON.stringify(members).slice(1));
	return () => {
		const body = Buffer.concat([gzipSync(`{"id":"${randomUUID()}",`, { level: 0 }), rest]);
		return postBytes(WEBHOOK, { "Content-Encoding": "gzip", "X-Access-Token": KEY }, body);
	};
}

/** Successes a second with as many requests under way as a sane client has. */
async function atOnce(address: string, request: () => Buffer, seconds: number): Promise<number> {
	const lanes = new HttpLanes(address, SANE);
	const start = performance.now();
	const until = start + seconds * 1000;
	let successes = 0;
	const lane = async (): Promise<void> => {
		while (performance.now() < until) {
			const answer = await lanes.send(request());
			if (answer !== "200") throw new Error(`a record was answered with ${answer}`);
			if (performance.now() < until) successes += 1;
		}
	};
	await Promise.all(Array.from({ length: SANE }, lane)).finally(() => lanes.close());
	return successes / seconds;
}

/** Offers requests at a rate, whatever the answers are; gives what was offered and successes, a second. */
async function offer(address: string, request: () => Buffer, rate: number, seconds: number, report: Report) {
	const lanes = new HttpLanes(address, CONNECTIONS);
	const start = performance.now();
	const waits: number[] = [];
	let offered = 0;
	let successes = 0;
	let over = false;
	const sent: Promise<void>[] = [];
	const settle = async (answer: Promise<string>): Promise<void> => {
		const began = performance.now();
		const given = await answer;
		report.answer("records", given, { refusable: true });
		if (given !== "200" || over) return;
		successes += 1;
		waits.push(performance.now() - began);
	};
	for (;;) {
		const elapsed = (performance.now() - start) / 1000;
		if (elapsed >= seconds) break;
		for (let due = elapsed * rate - offered; due >= 1; due--) {
			const answer = lanes.send(request());
			// With every connection waiting, more cannot be offered.
			if (answer === undefined) break;
			offered += 1;
			sent.push(settle(answer));
		}
		await delay(TICK);
	}
	over = true;
	const waiting = lanes.waiting;
	lanes.close();
	await Promise.all(sent);
	waits.sort((a, b) => a - b);
	const median = Math.round(waits[Math.floor(waits.length / 2)] ?? 0);
	report.figure(`median wait of a success ${median} ms, ${waiting} without an answer at the end`);
	return { offered: offered / seconds, successes: successes / seconds };
}
