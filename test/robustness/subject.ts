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
/** Milliseconds between two samples of the memory. */
const SAMPLE_INTERVAL = 100;
/** Maximum number of loads. They end as soon as one leaves no more memory behind than the one before. */
const MAX_LOADS = 6;
/** Random variation of the bytes that the threads hold after a garbage collection. */
const HELD_ALLOWANCE = 4 * MiB;
/** Random variation of resident memory, in bytes. It includes free memory that the allocators keep. */
const RESIDENT_ALLOWANCE = 64 * MiB;
/** Arguments for node that let the program report the memory that it holds. */
const HELD_MEMORY_ARGUMENTS = ["--expose-gc", "--import", fileURLToPath(new URL("./held-memory.js", import.meta.url))];
/** File name of the socket for these reports. */
const SOCKET_NAME = "held-memory";
/** Maximum time for an ordinary client's response, in milliseconds: a third of the real sender's timeout. */
const RESPONSE_TIMEOUT = 10_000;
/** Number of posts after a load of which one must be accepted. */
const MAX_ATTEMPTS = 100;
/**
 * Usual maximum processor time of the main thread while a probe of `/healthz` waits, in milliseconds: the timeout of the probe
 * in deploy/kubernetes.yaml. Processor time, because other programs on the machine delay a probe, too.
 */
const PROBE_WORK = 3_000;
/** Maximum lifetime of the program, in milliseconds. */
const LIFETIME = 3_600_000;
/** Log lines that show a failure of the service. */
const FAILURES =
	/"event":"(?:request_failed|unexpected_error|store_failed|store_unhealthy|intake_failed)"|"kind":"(?:internal|data_loss)"/;

/** Memory of the service after a load, in bytes. */
interface Left {
	/** Bytes that its threads hold after a garbage collection. */
	readonly held: number;
	/** Resident memory after that. */
	readonly resident: number;
}

/** Returns the idle time after a load, in milliseconds, before the memory is measured. */
export function quiet(count: number, { long }: Pick<Run, "long">): number {
	return count >= long ? 10_000 : 500;
}

/** The real program in its own process. Its memory is sampled. */
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
		this.#sampling = setInterval(() => this.sample(), SAMPLE_INTERVAL);
	}

	/** Starts the program on a new database. */
	static async start(report: Report, env: Readonly<Record<string, string>> = {}): Promise<Subject> {
		const folder = new TempFolder("disk");
		try {
			const database = folder.file("conversations.db");
			const variables = { ...env, HELD_MEMORY_SOCKET: folder.file(SOCKET_NAME) };
			const command = [...HELD_MEMORY_ARGUMENTS, ...START_ARGUMENTS];
			const service = await ServiceProcess.start(database, variables, command, undefined, LIFETIME);
			return new Subject(service, folder, report);
		} catch (error) {
			folder[Symbol.dispose]();
			throw error;
		}
	}

	/** Returns the maximum resident memory seen since the last call, in bytes. */
	takePeak(): number {
		this.sample();
		const peak = this.#peak;
		this.#peak = 0;
		return peak;
	}

	/** Samples the resident memory. */
	sample(): void {
		this.#peak = Math.max(this.#peak, this.service.residentBytes);
	}

	/**
	 * Runs a load while ordinary clients make requests. Each of these requests must succeed, and in time if the
	 * report is timed.
	 *
	 * @param work what the ordinary clients do
	 * @param most maximum processor time of the main thread while a probe of `/healthz` waits, in milliseconds
	 */
	async amongOrdinary<Result>(
		load: () => Promise<Result>,
		work: OrdinaryWork = "all",
		most = PROBE_WORK,
	): Promise<Result> {
		const ordinary = await OrdinaryClients.start(this.service, KEY, work);
		const result = await load().catch(async (error) => {
			await ordinary.stop();
			throw error;
		});
		const { count, slowest, probeWork, problems } = await ordinary.stop();
		this.#report.figure(
			`${count} ordinary requests meanwhile, the slowest ${slowest.milliseconds} ms (${slowest.what})`,
		);
		this.#report.figure(`the main thread worked for up to ${probeWork} ms while a probe of /healthz waited`);
		this.#report.expect(probeWork <= most, `a probe of /healthz waited for ${probeWork} ms of work`);
		for (const problem of problems) this.#report.breaks(`an ordinary client: ${problem}`);
		this.#report.expect(
			!this.#report.isTimed || slowest.milliseconds <= RESPONSE_TIMEOUT,
			`an ordinary client waited ${slowest.milliseconds} ms`,
		);
		return result;
	}

	/**
	 * Repeats a load until it leaves no more memory behind than the one before, apart from random variation. The first
	 * loads compile code and fill caches. With a leak every load leaves more memory behind, which is a violation.
	 *
	 * @param quiet milliseconds without load before each measurement
	 * @param most maximum resident memory during the loads, in bytes
	 */
	async untilSteady(load: (round: number) => Promise<void>, quiet: number, most: number): Promise<void> {
		const before = this.service.residentBytes;
		this.takePeak();
		const after: Left[] = [];
		while (!isSteady(after) && after.length < MAX_LOADS) {
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

	/** Returns the bytes that all threads of the service hold after a garbage collection. */
	async #held(): Promise<number> {
		const bytes = Number(await text(connect(this.#folder.file(SOCKET_NAME))).catch(() => 0));
		this.#report.expect(bytes > 0, "the service does not tell what memory it holds");
		return bytes;
	}

	/** Reports failures of the service that its process and its log show. */
	async expectSound(): Promise<void> {
		if (this.service.ended) {
			this.#report.breaks(`the service has ended: ${this.service.output.stderr.slice(-2000)}`);
			return;
		}
		const post = async () => (await postWebhook(this.service, KEY, JSON.stringify(record()))).status;
		let status = await post();
		// The service may still be busy with the rest of an overload.
		for (let attempt = 1; status === 503 && attempt < MAX_ATTEMPTS; attempt++) {
			await delay(SAMPLE_INTERVAL);
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

/** Returns whether the last load left no more memory behind than the one before. */
function isSteady(after: readonly Left[]): boolean {
	const [former, last] = after.slice(-2);
	if (former === undefined || last === undefined) return false;
	return last.held <= former.held + HELD_ALLOWANCE && last.resident <= former.resident + RESIDENT_ALLOWANCE;
}

/** Formats bytes: `223, 224 MiB`. */
function inMiB(bytes: readonly number[]): string {
	return `${bytes.map((count) => Math.round(count / MiB)).join(", ")} MiB`;
}
