import { z } from "zod";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { readClient, rpcPath } from "../../test/support/clients.ts";
import { median, round } from "../figures.ts";
import type { FillPlan } from "../load/fill-plan.ts";
import { type Measurement, type Side, Target } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { Service } from "../processes/service.ts";
import { type BodyName, eventsRequest, ingestRequest, webhookRequest } from "../requests.ts";

/** Prints a line of progress. */
export type Report = (line: string) => void;

/** How long filling a database may take, in milliseconds. */
const FILL_PATIENCE = 240_000;

/** What a yardstick server announces. */
export const listening = z.object({ port: z.int() });

/** Requests under way at a time while a database is filled. */
const FILLING = 256;

/** Fills a database with the first updates of a load, in turn of `CONVERSATIONS` conversations. */
export async function fillHistory(database: string, body: BodyName, updates: number, report: Report): Promise<void> {
	await filled(database, `${updates} updates`, report, async (service) => {
		await using client = await Child.start("load/http.ts", z.unknown());
		const target = new Target(client, await webhookSide(body, service));
		await target.load({ concurrency: Math.min(FILLING, updates), milliseconds: FILL_PATIENCE, requests: updates });
	});
}

/** Fills a database with the first batches of five plain events of a load. */
export async function fillEvents(database: string, batches: number, report: Report): Promise<void> {
	await filled(database, `${batches} batches of events`, report, async (service) => {
		await using client = await Child.start("load/http.ts", z.unknown());
		const template = await eventsRequest("plain", service.key);
		const target = new Target(client, { name: "service", pid: service.pid, port: service.httpPort, template });
		await target.load({ concurrency: FILLING, milliseconds: FILL_PATIENCE, requests: batches });
	});
}

/** Fills a database with conversations of which `rare` have what `RARE` says. */
export async function fillVariety(
	database: string,
	conversations: number,
	rare: number,
	report: Report,
): Promise<void> {
	await filled(database, `${conversations} updates`, report, async ({ httpPort: port, key }) => {
		await using filler = await Child.start("load/fill.ts", z.unknown());
		await filler.ask({ port, key, conversations, rare } satisfies FillPlan, z.unknown());
	});
}

async function filled(
	database: string,
	what: string,
	report: Report,
	fill: (service: Service) => Promise<void>,
): Promise<void> {
	const start = performance.now();
	await using service = await Service.start({ database });
	await fill(service);
	report(`  stored ${what} in ${round((performance.now() - start) / 1000)} s`);
}

/** Webhook ingest of a body by a service. */
export async function webhookSide(body: BodyName, service: Service): Promise<Side> {
	const template = await webhookRequest(body, service.key);
	return { name: "service", pid: service.pid, port: service.httpPort, template };
}

/** gRPC ingest of a body by a service. */
export async function grpcSide(body: BodyName, service: Service): Promise<Side> {
	const path = rpcPath(ConversationIngestService.method.ingestConversation);
	const template = await ingestRequest(body);
	return { name: "service", pid: service.pid, port: service.grpcPort, template, path, key: service.key };
}

/** A client of a service's reads, to see that what is measured is what is meant. */
export function readerOf({ httpPort, grpcPort, key }: Service) {
	return readClient({ http: `http://127.0.0.1:${httpPort}`, grpc: `127.0.0.1:${grpcPort}` }, "connect", key);
}

/** Medians of both servers' rates and costs. */
export function noteOf(pairs: readonly (readonly [Measurement, Measurement])[]): string {
	const of = (index: 0 | 1) => {
		const rate = median(pairs.map((pair) => pair[index].rate));
		const cost = median(pairs.map((pair) => pair[index].cost));
		return `${round(rate)}/s (${round(cost)} ms CPU each)`;
	};
	return `${of(1)} against ${of(0)}`;
}
