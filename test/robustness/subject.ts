import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { START_ARGUMENTS } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";
import { OrdinaryClients, type OrdinaryWork } from "./ordinary.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";

const MiB = 2 ** 20;
/** Milliseconds between two looks at the memory. */
const SAMPLING = 100;
/** Most times that a load is made until one leaves no more behind than the one before. */
const LOADS = 6;
/** How much more a load may leave by chance in what the threads hold after a collection of garbage, in bytes. */
const HELD_ALLOWANCE = 4 * MiB;
/** The same in resident memory, which has free parts that the allocators keep as well. */
const RESIDENT_ALLOWANCE = 64 * MiB;
/** What makes the program tell how much memory it holds. */
const HELD_MEMORY = ["--expose-gc", "--import", fileURLToPath(new URL("./held-memory.js", import.meta.url))];
/** Name of the socket at which it tells that. */
const SOCKET = "held-memory";
/** How long anyone but the troublemaker may wait for an answer, in milliseconds: a third of what the real sender gives. */
const PATIENCE = 10_000;
/** Longest life of the program, in milliseconds. */
const LIFETIME = 3_600_000;
/** Lines of the log that tell of a failure of the service. */
const FAILURES =
	/"event":"(?:request_failed|unexpected_error|store_failed|store_unhealthy|intake_failed)"|"kind":"(?:internal|data_loss)"/;

/** Memory that the service has after a load, in bytes. */
interface Left {
	/** What its threads hold after a collection of garbage. */
	readonly held: number;
	/** What is resident then. */
	readonly resident: number;
}

/** How long the service is left alone after a load, before its memory is measured, in milliseconds. */
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
			const variables = { ...env, HELD_MEMORY_SOCKET: folder.file(SOCKET) };
			const command = [...HELD_MEMORY, ...START_ARGUMENTS];
			const service = await ServiceProcess.start(database, variables, command, undefined, LIFETIME);
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
	 * Runs a load again and again, until one leaves no more memory behind than the one before, apart from what chance adds.
	 * In the first loads code is compiled and caches fill up to their bounds; of a leak every load leaves more behind, and
	 * that breaks a law.
	 *
	 * @param quiet milliseconds in which the service is left alone after each load
	 * @param most memory that the service may have meanwhile, in bytes
	 */
	async untilSteady(load: (round: number) => Promise<void>, quiet: number, most: number): Promise<void> {
		const before = this.service.residentBytes;
		this.takePeak();
		const after: Left[] = [];
		while (!isSteady(after) && after.length < LOADS) {
			await load(after.length);
			await delay(quiet);
			const held = await this.#held();
			after.push({ held, resident: this.service.residentBytes });
		}
		const peak = this.takePeak();
		const left = `held ${inMiB(after.map(({ held }) => held))}, resident ${inMiB(after.map(({ resident }) => resident))}`;
		this.#report.figure(
			`memory: resident ${inMiB([before])} before, at most ${inMiB([peak])}; after each load ${left}`,
		);
		this.#report.expect(isSteady(after), `each load leaves more memory behind: ${left}`);
		this.#report.expect(peak <= most, `the service took ${inMiB([peak])} of ${inMiB([most])} that it may take`);
	}

	/** What all threads of the service hold after a collection of garbage, in bytes. */
	async #held(): Promise<number> {
		const bytes = Number(await text(connect(this.#folder.file(SOCKET))).catch(() => 0));
		this.#report.expect(bytes > 0, "the service does not tell what memory it holds");
		return bytes;
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

/** Whether the last load left no more behind than the one before it. */
function isSteady(after: readonly Left[]): boolean {
	const [former, last] = after.slice(-2);
	if (former === undefined || last === undefined) return false;
	return last.held <= former.held + HELD_ALLOWANCE && last.resident <= former.resident + RESIDENT_ALLOWANCE;
}

/** `223, 224 MiB` */
function inMiB(bytes: readonly number[]): string {
	return `${bytes.map((count) => Math.round(count / MiB)).join(", ")} MiB`;
}
