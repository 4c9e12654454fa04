import { join } from "node:path";
import type { Benchmark } from "./benchmark.ts";
import { citusIngest } from "./benchmarks/citus.ts";
import { citusReads } from "./benchmarks/citus-reads.ts";
import { consolePages, openConsoles } from "./benchmarks/console.ts";
import { eventGrowth, events, fullState } from "./benchmarks/events.ts";
import { forwarding } from "./benchmarks/forwarding.ts";
import { get } from "./benchmarks/get.ts";
import { growth } from "./benchmarks/growth.ts";
import { grpc, webhook } from "./benchmarks/ingest.ts";
import { list, postgresList } from "./benchmarks/list.ts";
import { ownerLists, postgresOwnerLists } from "./benchmarks/owner-lists.ts";
import { postgresCounter, postgresIngest, postgresReplicas } from "./benchmarks/postgres.ts";
import { refusalFlood } from "./benchmarks/refusals.ts";
import { postgresRetention } from "./benchmarks/retention.ts";
import { search } from "./benchmarks/search.ts";
import { space } from "./benchmarks/space.ts";
import { steady } from "./benchmarks/steady.ts";
import { postgresUsage, usageReports } from "./benchmarks/usage.ts";
import { fanOut, watched } from "./benchmarks/watch.ts";
import { type Figure, formatTable, reached } from "./figures.ts";
import { showProfiles } from "./profiles.ts";
import { readSettings, type Settings, USAGE } from "./settings.ts";

const BENCHMARKS: readonly Benchmark[] = [
	webhook("small", 0.5),
	webhook("large", 0.4),
	grpc("small", 0.7),
	grpc("large", 0.7),
	...steady,
	growth,
	get("small"),
	get("large"),
	list,
	ownerLists,
	fanOut,
	watched("all"),
	watched("one"),
	consolePages,
	openConsoles,
	events("usual", 0.4),
	events("plain", 0.4),
	fullState(16, 1.5),
	fullState(1_000, undefined),
	eventGrowth,
	forwarding,
	refusalFlood,
	postgresIngest,
	postgresReplicas,
	postgresCounter,
	postgresRetention,
	postgresList,
	postgresOwnerLists,
	usageReports,
	postgresUsage,
	citusIngest,
	citusReads,
	search,
	space,
];

/** Runs the selected benchmarks one after the other. A failed request makes the run fail; a missed target does not. */
async function main(settings: Settings): Promise<void> {
	const unknown = settings.names.filter((chosen) => !BENCHMARKS.some(({ name }) => name.startsWith(chosen)));
	if (unknown.length > 0) throw new Error(`there is no benchmark ${unknown.join(", ")}`);
	const chosen = BENCHMARKS.filter(
		({ name, comparable }) =>
			(settings.against === undefined || comparable === true) &&
			(settings.names.length === 0 || settings.names.some((start) => name.startsWith(start))),
	);
	if (chosen.length === 0) throw new Error("only the ingest can be measured against another checkout");
	const figures: Figure[] = [];
	for (const benchmark of chosen) {
		report(`${benchmark.name}: ${benchmark.about}`);
		try {
			const profile = settings.profile && join(settings.profile, benchmark.name);
			figures.push(...(await benchmark.run({ ...settings, profile }, report)));
			if (profile !== undefined) report(await showProfiles(profile));
		} catch (error) {
			report(`${benchmark.name} failed: ${String(error)}`);
			process.exitCode = 1;
		}
	}
	const results = figures.map((figure) => ({ ...figure, reached: reached(figure) }));
	process.stdout.write(`${settings.json ? JSON.stringify(results, null, "\t") : formatTable(figures)}\n`);
}

/** Writes progress to standard error, because the figures go to standard output. */
function report(line: string): void {
	process.stderr.write(`${line}\n`);
}

// process.exit runs the exit listeners, which end the services. A guard process ends each database server.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

const usage = `${USAGE}\nBenchmarks:\n${BENCHMARKS.map(({ name, about }) => `  ${name.padEnd(15)}  ${about}`).join("\n")}\n`;
const args = process.argv.slice(2);
if (args.includes("--help")) {
	process.stdout.write(usage);
} else {
	try {
		await main(readSettings(args));
	} catch (error) {
		report(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`);
		process.exitCode = 2;
	}
}
