import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { ratioFigure } from "../figures.ts";
import { measurePairs, ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { fillHistory, noteOf, webhookLoad } from "./parts.ts";

/** Number of updates stored before the measurement. */
const STORED = 200_000;

/** Cost of an ingest when many updates are stored. */
export const growth: Benchmark = {
	name: "growth",
	about: `time per webhook ingest of the small body with ${STORED} updates stored, against an empty store`,
	async run(settings, report) {
		await using emptyFolder = await DiskFolder.create(settings.folder);
		await using fullFolder = await DiskFolder.create(settings.folder);
		await fillHistory(fullFolder.database, "small", STORED, report);
		await using empty = await Service.start({ database: emptyFolder.database });
		await using full = await Service.start({ database: fullFolder.database, profile: settings.profile });
		await using client = await Child.start("load/http.ts", z.unknown());
		const reference = new ServerTarget(client, { ...(await webhookLoad("small", empty)), name: "empty" });
		const subject = new ServerTarget(client, { ...(await webhookLoad("small", full)), name: "full" }, STORED);
		const pairs = await measurePairs(settings, reference, subject, report);
		const ratios = pairs.map(([before, after]) => before.rate / after.rate);
		return [ratioFigure("growth", ratios, { at: "most", value: 1.15 }, noteOf(pairs))];
	},
};
