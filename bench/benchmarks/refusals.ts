import { randomBytes } from "node:crypto";
import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { ratioFigure } from "../figures.ts";
import { type LoadPlan, loadResult } from "../load/plan.ts";
import { CONVERSATIONS, type LoadTarget, measurePairs, ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { noteOf, webhookLoad } from "./parts.ts";

/** Refused posts per second of the flood. */
const RATE = 500;

/** Rate of accepted posts while others are refused, whose bodies are kept, compared with that without a flood. */
export const refusalFlood: Benchmark = {
	name: "refusal-flood",
	about: `webhook ingest of the small record while ${RATE} batches a second are refused and kept, against the same without them`,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		const environment = { ENCRYPTION_KEY: randomBytes(32).toString("base64"), LOG_LEVEL: "error" };
		await using service = await Service.start({ database: folder.database, profile: settings.profile, environment });
		await using client = await Child.start("load/http.ts", z.unknown());
		await using flooding = await Child.start("load/http.ts", z.unknown());
		const accepted = new ServerTarget(client, await webhookLoad("small", service));
		await accepted.load({ ...settings, requests: CONVERSATIONS });
		const flood: Pick<LoadPlan, "port" | "request"> = { port: service.httpPort, request: refusedBatch(service.key) };
		const flooded: LoadTarget = {
			name: "with the flood",
			async load(limits) {
				const refused = flooding.ask({ ...flood, ...limits, concurrency: 16, rate: RATE }, loadResult);
				const measured = await accepted.load(limits);
				const { answered, failed } = await refused;
				if (answered > 0 || failed === 0) throw new Error("the posts of the flood were not refused");
				return measured;
			},
		};
		const pairs = await measurePairs(settings, accepted, flooded, report);
		const ratios = pairs.map(([without, during]) => during.rate / without.rate);
		return [ratioFigure("refusal-flood", ratios, { at: "least", value: 0.9 }, noteOf(pairs))];
	},
};

function refusedBatch(key: string): Uint8Array<ArrayBuffer> {
	const body = '[{"id":1,"kind":"MessageEvent"}]';
	const head = [
		"POST /api/v1/webhooks/events/00000000-4444-4444-8444-444444444444 HTTP/1.1",
		"Host: localhost",
		"Content-Type: application/json",
		`X-Access-Token: ${key}`,
		`Content-Length: ${body.length}`,
		"\r\n",
	];
	return new TextEncoder().encode(head.join("\r\n") + body);
}
