import { setTimeout as delay } from "node:timers/promises";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";
import { OrdinaryClients, type OrdinaryWork } from "./ordinary.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";

const MiB = 2 ** 20;
/** Milliseconds between two looks at the memory. */
const SAMPLING = 100;
/** By how much the memory after the second of two equal loads may exceed that after the first, in bytes. */
const ALLOWANCE = 64 * MiB;
/** How long the service may take to give memory back, in milliseconds. */
const GIVING_BACK = 60_000;
/** How long anyone but the troublemaker may wait for an answer, in milliseconds: a third of what the real sender gives. */
const PATIENCE = 10_000;
/** Longest life of the program, in milliseconds. */
const LIFETIME = 3_600_000;
/** Lines of the log that tell of a failure of the service. */
const FAILURES =
	/"event":"(?:request_failed|unexpected_error|store_failed|store_unhealthy|intake_failed)"|"kind":"(?:internal|data_loss)"/;

/** How long the memory is watched after a load, in milliseconds. */
export function quiet(count: number, { long }: Pick<Run, "long">): number {
	return count >= long ? 10_000 : 500;
}

/** The real program in a process of its own, whose memory is watched. */
export class Subject implements AsyncDisposable {
	readonly service: ServiceProcess;
	readonly #report: Report;
	readonly #folder: TempFolder;
	readonly #sampling: NodeJS.Timeout;
	#peak = 0;

	private constructor(service: ServiceProcess, folder: TempFolder, report: Report) {
		this.service = service;
		this.#folder = folder;
		this.#report = report;
		this.#sampling = setInterval(() => this.sample(), SAMPLING);
	}

	/** Starts the program on a database of its own. */
	static async start(report: Report, env: Readonly<Record<string, string>> = {}): Promise<Subject> {
		const folder = new TempFolder();
		try {
			const database = folder.file("conversations.db");
			const service = await ServiceProcess.start(database, env, undefined, undefined, LIFETIME);
			return new Subject(service, folder, report);
		} catch (error) {
			folder[Symbol.dispose]();
			throw error;
		}
	}

	/** Most memory that the program was seen to have since the last call, in bytes. */
	takePeak(): number {
		this.sample();
		const peak = this.#peak;
		this.#peak = 0;
		return peak;
	}

	/** Looks at the memory. */
	sample(): void {
		this.#peak = Math.max(this.#peak, this.service.residentBytes);
	}

	/**
	 * Runs a load while ordinary clients go on, all of whose requests must be answered with success in time.
	 *
	 * @param work what they do
	 */
	async amongOrdinary<Result>(load: () => Promise<Result>, work: OrdinaryWork = "all"): Promise<Result> {
		const ordinary = await OrdinaryClients.start(this.service, KEY, work);
		const result = await load().catch(async (error) => {
			await ordinary.stop();
			throw error;
		});
		const { count, slowest, problems } = await ordinary.stop();
		this.#report.figure(
			`${count} ordinary requests meanwhile, the slowest ${slowest.milliseconds} ms (${slowest.what})`,
		);
		for (const problem of problems) this.#report.breaks(`an ordinary client: ${problem}`);
		this.#report.expect(slowest.milliseconds <= PATIENCE, `an ordinary client waited ${slowest.milliseconds} ms`);
		return result;
	}

	/**
	 * Runs a load twice. V8 gives memory back late, and caches fill up to their bounds, so the first time shows how much
	 * the service has afterwards; the second time must not leave more behind, apart from 64 MiB of chance.
	 *
	 * @param quiet milliseconds in which the least memory after the first time counts
	 * @param most memory that the service may have meanwhile, in bytes
	 * @param judged whether it must give memory back; what it has is reported in any case
	 */
	async twice(load: (round: number) => Promise<void>, quiet: number, most: number, judged = true): Promise<void> {
		const before = this.service.residentBytes;
		this.takePeak();
		await load(0);
		const firstPeak = this.takePeak();
		const plateau = await this.#lowest(quiet);
		this.takePeak();
		await load(1);
		const secondPeak = this.takePeak();
		const back = await this.#lowest(judged ? GIVING_BACK : 0, plateau + ALLOWANCE);
		const after = await this.#lowest(quiet);
		const figures = { before, "first load": firstPeak, after: plateau, "second load": secondPeak, "after it": after };
		const shown = Object.entries(figures).map(([name, bytes]) => `${name} ${Math.round(bytes / MiB)} MiB`);
		this.#report.figure(`resident memory: ${shown.join(", ")}`);
		this.#report.expect(
			!judged || back <= plateau + ALLOWANCE,
			`the memory does not come back: ${Math.round(plateau / MiB)} MiB after the first load, ${Math.round(back / MiB)} after the second`,
		);
		const peak = Math.max(firstPeak, secondPeak);
		this.#report.expect(
			peak <= most,
			`the service took ${Math.round(peak / MiB)} MiB of ${Math.round(most / MiB)} MiB that it may take`,
		);
	}

	/** The least memory that the service has in some time, or as soon as that is little enough, in bytes. */
	async #lowest(milliseconds: number, enough = 0): Promise<number> {
		const until = performance.now() + milliseconds;
		let lowest = this.service.residentBytes;
		while (performance.now() < until && lowest > enough) {
			await delay(SAMPLING);
			lowest = Math.min(lowest, this.service.residentBytes);
		}
		return lowest;
	}

	/** Tells the report if the service has failed in any way that its own process and log show. */
	async expectSound(): Promise<void> {
		if (this.service.ended) {
			this.#report.breaks(`the service has ended: ${this.service.output.stderr.slice(-2000)}`);
			return;
		}
		const post = async () => (await postWebhook(this.service, KEY, JSON.stringify(record()))).status;
		const until = performance.now() + PATIENCE;
		let status = await post();
		// It may still be at what clients of an overload have left behind.
		while (status === 503 && performance.now() < until) {
			await delay(SAMPLING);
			status = await post();
		}
		this.#report.expect(status === 200, `an ordinary record is answered with ${status} afterwards`);
		const { stdout, stderr } = this.service.output;
		for (const line of stdout.split("\n")) if (FAILURES.test(line)) this.#report.breaks(`the log tells: ${line}`);
		this.#report.expect(stderr === "", `standard error has ${stderr.slice(0, 2000)}`);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		clearInterval(this.#sampling);
		await this.service[Symbol.asyncDispose]();
		this.#folder[Symbol.dispose]();
	}
}
