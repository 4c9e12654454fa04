import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, ratioFigure, round } from "../figures.ts";
import { ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DatabaseServer, sqlOn } from "../processes/database-server.ts";
import { Service } from "../processes/service.ts";
import type { Settings } from "../settings.ts";
import { fillHistory, webhookLoad } from "./parts.ts";

/** Number of updates stored before the measurement, and number of updates per conversation that retention keeps. */
const STORED = 40_000;
const KEPT = 5;

/** Cost of retention for the ingest while it removes a backlog. */
export const postgresRetention: Benchmark = {
	name: "postgres-retention",
	about: `webhook ingest into PostgreSQL while retention removes ${STORED} updates, against ingest without retention`,
	async run(settings, report) {
		await using server = await DatabaseServer.start(settings.folder);
		const filled = await server.create();
		await fillHistory(filled, "small", STORED, report);
		const ratios: number[] = [];
		const removed: number[] = [];
		for (let i = 1; i <= settings.rounds; i++) {
			const [without, during] = [await server.create(filled), await server.create(filled)];
			const reference = await ingest(settings, without, {});
			const subject = await ingest(settings, during, { RETENTION_UPDATES_PER_CONVERSATION: String(KEPT) });
			ratios.push(subject.rate / reference.rate);
			removed.push(subject.removed / subject.seconds);
			const parts = [`without ${round(reference.rate)}/s`, `with ${round(subject.rate)}/s`];
			report(`  ${i}/${settings.rounds} ${parts.join(" | ")}, ${round(subject.removed)} removed`);
		}
		const note = `${removed.map(round).join(", ")} updates a second removed`;
		const figure: Figure = ratioFigure("postgres-retention", ratios, undefined, note);
		return [figure];
	},
};

/** Measures the ingest of a service that has just started, for the time of two measurements. */
async function ingest(settings: Settings, database: string, environment: Readonly<Record<string, string>>) {
	await using client = await Child.start("load/http.ts", z.unknown());
	await using service = await Service.start({ database, environment });
	const target = new ServerTarget(client, await webhookLoad("small", service), STORED);
	const milliseconds = settings.milliseconds * 2;
	const { rate } = await target.load({ ...settings, milliseconds });
	const [row] = await sqlOn(database, "SELECT count(*) AS stored FROM conversation_updates.updates");
	const { stored } = z.object({ stored: z.coerce.number() }).parse(row);
	return { rate, seconds: milliseconds / 1000, removed: target.sent - stored };
}
