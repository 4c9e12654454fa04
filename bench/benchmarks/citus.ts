import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { citusPrograms } from "../../test/store/citus/build.ts";
import { Cluster } from "../../test/store/citus/cluster.ts";
import { openStore } from "../../test/store/postgres/databases.ts";
import { PostgresServer } from "../../test/store/postgres/server.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, round } from "../figures.ts";
import { ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { childSeconds, processorSeconds } from "../processes/usage.ts";
import { fillHistory, webhookLoad } from "./parts.ts";

const CONVERSATIONS = 1_000;
/** Numbers of workers. */
const WORKERS = [1, 2, 4];
/** As on servers in production: see `DatabaseServer`. */
export const DURABLE = { fsync: "on", shared_buffers: "256MB", max_wal_size: "4GB", checkpoint_timeout: "15min" };

/** Ingest into Citus with some numbers of workers, beside one PostgreSQL server. All processes share the processors. */
export const citusIngest: Benchmark = {
	name: "citus-ingest",
	about: "webhook ingest into Citus with 1, 2 and 4 workers, durable, beside one PostgreSQL server of the same release",
	async run(settings, report) {
		const figures: Figure[] = [];
		const measure = async (name: string, url: string, nodes: ReadonlyMap<string, number>) => {
			await fillHistory(url, "small", CONVERSATIONS, report);
			await using service = await Service.start({ database: url, profile: settings.profile });
			await using client = await Child.start("load/http.ts", z.unknown());
			const target = new ServerTarget(client, await webhookLoad("small", service), CONVERSATIONS);
			await target.load(settings);
			const rates: number[] = [];
			const sent = target.sent;
			const before = await secondsOf(nodes);
			let cost = 0;
			for (let n = 0; n < settings.rounds; n++) {
				const measured = await target.load(settings);
				rates.push(measured.rate);
				cost += measured.cost / settings.rounds;
			}
			const after = await secondsOf(nodes);
			const shares = [...nodes.keys()].map((node) => {
				const seconds = (after.get(node) ?? 0) - (before.get(node) ?? 0);
				return `${node} ${round((1000 * seconds) / (target.sent - sent))}`;
			});
			const note = `CPU of a post in ms: service ${round(cost)}, ${shares.join(", ")}`;
			report(`  ${name}: ${rates.map(round).join(", ")}/s; ${note}`);
			const spread = [Math.min(...rates), Math.max(...rates)] as const;
			const one = await target.load({ ...settings, concurrency: 1 });
			figures.push({ name: `citus-ingest: ${name}`, value: median(rates), unit: "/s", spread, note });
			figures.push({ name: `citus-ingest: ${name}, one post at a time`, value: one.latency[0], unit: "ms", note: "" });
		};
		await plain(settings.folder, measure);
		for (const workers of WORKERS) await spread(settings.folder, workers, measure);
		return figures;
	},
};

type Measure = (name: string, url: string, nodes: ReadonlyMap<string, number>) => Promise<void>;

async function plain(parent: string, measure: Measure): Promise<void> {
	await using folder = await DiskFolder.create(parent);
	await using server = await PostgresServer.create(join(folder.path, "server"), await citusPrograms());
	server.configure(DURABLE);
	await server.start();
	await measure("one server", server.url("?sslmode=disable"), new Map([["server", server.pid]]));
}

async function spread(parent: string, workers: number, measure: Measure): Promise<void> {
	await using folder = await DiskFolder.create(parent);
	await using cluster = await startCitus(folder.path, workers);
	const url = cluster.coordinator.url("?sslmode=disable");
	await (await openStore(url, { distribute: true })).close();
	const nodes = new Map([["coordinator", cluster.coordinator.pid]]);
	for (const [n, { pid }] of cluster.workers.entries()) nodes.set(`worker ${n + 1}`, pid);
	await measure(`${workers} worker${workers === 1 ? "" : "s"}`, url, nodes);
}

export function startCitus(folder: string, workers: number): Promise<Cluster> {
	return Cluster.start(folder, workers, DURABLE);
}

/** Returns the processor time that the processes of each server have used, in seconds. */
async function secondsOf(nodes: ReadonlyMap<string, number>): Promise<Map<string, number>> {
	const seconds = new Map<string, number>();
	for (const [node, pid] of nodes) {
		let sum = (await processorSeconds(pid)) + (await childSeconds(pid));
		const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean);
		for (const child of children) sum += (await processorSeconds(Number(child))) || 0;
		seconds.set(node, sum);
	}
	return seconds;
}
